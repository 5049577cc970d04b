"""Reads ``ipset save``: sets of addresses, networks and ports; each entry becomes elements of a collection.

The dimension ``port`` of a set becomes two parts of the key, the protocol and the port. Sets with other values than
numbers (MAC addresses, marks, interfaces, ``nomatch``, sets of sets) are not interpreted: ``IpSet.uninterpreted`` then
holds the reason, ``elements`` is empty, and a test of the set is ``Unknown``.
"""

from itertools import product

from msgspec import Struct

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import NotInterpretedError, abbreviated
from knft.interpret.iptables.numbers import UDPLITE, WIDTHS, address_range, number, ports, protocol
from knft.interpret.iptables.numbers import network as network_of
from knft.interpret.iptables.quoting import split_words, unquote
from knft.interpret.rules import Element
from knft.protocols import SCTP, TCP, UDP

KeyPart = int | tuple[int, int]

_ENTRY_OPTIONS = {"timeout", "packets", "bytes", "comment", "skbmark", "skbprio", "skbqueue"}
_FLAGS = {"counters", "comment", "skbinfo", "forceadd", "-exist", "-!", "wildcard"}
_OPTIONS = {"hashsize", "maxelem", "bucketsize", "initval", "timeout", "range", "size"}
_DIMENSIONS = frozenset({"ip", "net", "port"})
_ALL_PORTS = (0, 0xFFFF)
_WITH_PORTS = frozenset({TCP, UDP, SCTP, UDPLITE})
"""Protocols whose ports the kernel looks up; of others, except ICMP, only the protocol (ip_set_getport.c)."""


class IpSet(Struct, frozen=True):
    """An ipset; ``parts`` are its dimensions, ``version`` is None if its type has no family."""

    parts: tuple[str, ...]
    version: IpVersion | None
    elements: tuple[Element, ...] = ()
    uninterpreted: str = ""
    """The line or type that is not interpreted, if there is one; the set then has no elements."""


class _SetBuilder(Struct):
    """An ipset while its entries are read."""

    method: str
    parts: tuple[str, ...]
    version: IpVersion | None
    prefix_length: int | None
    uninterpreted: str
    elements: dict[tuple[KeyPart, ...], Element]


def read_sets(text: str) -> dict[str, IpSet]:
    """Return the ipsets in the output of ``ipset save`` by name; raise CaptureError."""
    reader = _Reader()
    for line_number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            try:
                reader.line(split_words(line))
            except CaptureError as error:
                msg = f"line {line_number}: {error}"
                raise CaptureError(msg) from error
    return {name: _build(builder) for name, builder in reader.sets.items()}


def _build(builder: _SetBuilder) -> IpSet:
    if builder.uninterpreted:
        return IpSet(builder.parts, builder.version, (), builder.uninterpreted)
    return IpSet(builder.parts, builder.version, tuple(builder.elements.values()))


class _Reader:
    """Reads line by line; ``sets`` are the ipsets so far."""

    def __init__(self) -> None:
        self.sets: dict[str, _SetBuilder] = {}
        self._verbs = {
            "create": self._create,
            "add": self._add,
            "del": self._delete,
            "flush": self._flush,
            "destroy": self._destroy,
        }

    def line(self, words: list[str]) -> None:
        """Read one line."""
        verb, *rest = words
        read = self._verbs.get(verb)
        if read is None:
            msg = f"{abbreviated(' '.join(words))} is not a line of `ipset save`"
            raise CaptureError(msg)
        read(rest)

    def _create(self, words: list[str]) -> None:
        name, kind, *options = _at_least(2, words, "create")
        if name not in self.sets:  # like `ipset restore -exist`
            self.sets[name] = _new_set(kind, options)

    def _add(self, words: list[str]) -> None:
        name, entry, *options = _at_least(2, words, "add")
        builder = self._existing_set(name)
        if builder.uninterpreted:
            return
        try:
            comment = _comment(options)
            for key in _keys(builder, entry):
                builder.elements[key] = Element(key, comment=comment)
        except NotInterpretedError:
            builder.uninterpreted = " ".join(("add", name, entry, *map(unquote, options)))

    def _delete(self, words: list[str]) -> None:
        name, entry, *_ = _at_least(2, words, "del")
        builder = self._existing_set(name)
        try:
            for key in _keys(builder, entry):
                builder.elements.pop(key, None)
        except NotInterpretedError:
            builder.uninterpreted = f"del {name} {entry}"

    def _flush(self, words: list[str]) -> None:
        for name in words or self.sets:
            self._existing_set(name).elements.clear()

    def _destroy(self, words: list[str]) -> None:
        for name in words or list(self.sets):
            self._existing_set(name)
            del self.sets[name]

    def _existing_set(self, name: str) -> _SetBuilder:
        builder = self.sets.get(name)
        if builder is None:
            msg = f"the set {abbreviated(name)} was not created above: the capture is incomplete, run ipset save again"
            raise CaptureError(msg)
        return builder


def _at_least(count: int, words: list[str], verb: str) -> list[str]:
    if len(words) < count:
        msg = f"{verb} needs at least {count} arguments"
        raise CaptureError(msg)
    return [unquote(word) for word in words[:count]] + words[count:]


def _new_set(kind: str, words: list[str]) -> _SetBuilder:
    method, _, dimensions = kind.partition(":")
    parts = tuple(dimensions.split(","))
    options = _parse_create_options(words)
    uninterpreted = options.get("unknown", "")
    if method not in ("hash", "bitmap") or not _DIMENSIONS.issuperset(parts):
        uninterpreted = kind
    length = options.get("netmask")
    return _SetBuilder(
        method=method,
        parts=parts,
        version=_version(kind, options.get("family", "inet")),
        prefix_length=int(length) if length is not None and length.isdecimal() and len(length) <= len("128") else None,
        uninterpreted=uninterpreted,
        elements={},
    )


def _version(kind: str, family: str) -> IpVersion | None:
    """Return the IP version of a set; None for ``bitmap:port`` and sets of sets, which have no family."""
    if kind in ("bitmap:port", "list:set"):
        return None
    return 6 if family == "inet6" else 4


def _parse_create_options(words: list[str]) -> dict[str, str]:
    """Return the options of ``create`` that matter; the first unknown option is in ``unknown``."""
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in ("family", "netmask"):
            options[word] = next(rest, "")
        elif word in _OPTIONS:
            next(rest, None)
        elif word not in _FLAGS:
            options.setdefault("unknown", unquote(word))
    return options


def _comment(options: list[str]) -> str:
    """Return the comment of an entry; raise NotInterpretedError for an option that changes the entry's meaning."""
    comment = ""
    words = iter(options)
    for word in words:
        if word in _ENTRY_OPTIONS:
            value = unquote(next(words, ""))
            comment = value if word == "comment" else comment
        elif word not in _FLAGS:
            raise NotInterpretedError(word)
    return comment


def _keys(builder: _SetBuilder, entry: str) -> list[tuple[KeyPart, ...]]:
    """Return the keys of an entry; an entry of ``bitmap:port`` has one for TCP and one for UDP."""
    texts = entry.split(",")
    if len(texts) != len(builder.parts):
        msg = f"{abbreviated(entry)} is not an entry of a set of {','.join(builder.parts)}"
        raise CaptureError(msg)
    choices = [_entry_parts(builder, part, text) for part, text in zip(builder.parts, texts, strict=True)]
    return [tuple(part for parts in chosen for part in parts) for chosen in product(*choices)]


def _entry_parts(builder: _SetBuilder, part: str, text: str) -> list[tuple[KeyPart, ...]]:
    if part != "port":
        return [(_addresses(builder, text),)]
    name, has_protocol, port = text.rpartition(":")
    if builder.method == "bitmap":
        # A bitmap has only port numbers; the kernel looks up those of TCP and UDP (ip_set_getport.c).
        return [(protocol_number, _one_or_range(*ports(text, "-")[0])) for protocol_number in (TCP, UDP)]
    protocol_number = protocol(name) if has_protocol else TCP
    return [(protocol_number, _ports(protocol_number, port))]


def _ports(protocol_number: int, text: str) -> KeyPart:
    if protocol_number in _WITH_PORTS:
        return _one_or_range(*ports(text, "-")[0])
    if protocol_number in (1, 58):
        # ICMP has a type and a code instead of a port; names of types are not interpreted.
        kind, is_pair, code = text.partition("/")
        if not is_pair:
            raise NotInterpretedError(text)
        return number(kind, 255) << 8 | number(code, 255)
    return _ALL_PORTS


def _addresses(builder: _SetBuilder, text: str) -> KeyPart:
    version: IpVersion = builder.version or 4
    if "-" in text:
        ((first, last),) = address_range(text, version)
    else:
        first, last = network_of(text, version)
    if builder.prefix_length is not None:
        size = 1 << max(WIDTHS[version] - builder.prefix_length, 0)
        first, last = first & ~(size - 1), last | (size - 1)
    return _one_or_range(first, last)


def _one_or_range(first: int, last: int) -> KeyPart:
    return first if first == last else (first, last)
