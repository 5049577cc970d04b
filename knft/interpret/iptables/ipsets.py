"""Reads ``ipset save``: sets of addresses, networks and ports, each as the elements of a collection.

A part ``port`` of a set is two parts of a key, the protocol and the port. Whatever cannot be said with numbers (MAC
addresses, marks, interfaces, exceptions marked ``nomatch``, sets of sets) leaves the whole set without elements, with
the reason why: a test of such a set is ``Unknown``.
"""

from itertools import product

from msgspec import Struct

from knft.errors import CaptureError
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.numbers import TCP, UDP, WIDTHS, number, ports, protocol, span
from knft.interpret.iptables.numbers import network as network_of
from knft.interpret.iptables.words import plain, quoted, split
from knft.interpret.rules import Element, IpVersion

KeyPart = int | tuple[int, int]

_ENTRY_OPTIONS = {"timeout", "packets", "bytes", "comment", "skbmark", "skbprio", "skbqueue"}
_FLAGS = {"counters", "comment", "skbinfo", "forceadd", "-exist", "-!", "wildcard"}
_OPTIONS = {"hashsize", "maxelem", "bucketsize", "initval", "timeout", "range", "size"}
_DIMENSIONS = frozenset({"ip", "net", "port"})
_ALL_PORTS = (0, 0xFFFF)
_WITH_PORTS = frozenset({TCP, UDP, 132, 136})
"""Of these protocols the kernel looks at ports; of others, ICMP apart, at the protocol alone (ip_set_getport.c)."""


class IpSet(Struct, frozen=True):
    """A set; ``parts`` are those of its type, and ``version`` is None where it is of no family."""

    parts: tuple[str, ...]
    version: IpVersion | None
    elements: tuple[Element, ...] = ()
    uninterpreted: str = ""
    """Why it has no elements here, where it may have some."""


class _Made(Struct):
    """A set while its entries are read."""

    method: str
    parts: tuple[str, ...]
    version: IpVersion | None
    prefix_length: int | None
    uninterpreted: str
    elements: dict[tuple[KeyPart, ...], Element]


def read_sets(text: str) -> dict[str, IpSet]:
    """Return the sets by name; raise CaptureError where a line is none of ``ipset save``."""
    reader = _Reader()
    for line_number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            try:
                reader.line(split(line))
            except CaptureError as error:
                msg = f"line {line_number}: {error}"
                raise CaptureError(msg) from error
    return {name: _finished(made) for name, made in reader.sets.items()}


def _finished(made: _Made) -> IpSet:
    if made.uninterpreted:
        return IpSet(made.parts, made.version, (), made.uninterpreted)
    return IpSet(made.parts, made.version, tuple(made.elements.values()))


class _Reader:
    """What the lines so far have made."""

    def __init__(self) -> None:
        self.sets: dict[str, _Made] = {}
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
            msg = f"{quoted(' '.join(words))} is no line of `ipset save`"
            raise CaptureError(msg)
        read(rest)

    def _create(self, words: list[str]) -> None:
        name, kind, *options = _at_least(2, words, "create")
        if name not in self.sets:  # as `ipset restore -exist` has it
            self.sets[name] = _made(kind, options)

    def _add(self, words: list[str]) -> None:
        name, entry, *options = _at_least(2, words, "add")
        made = self._there(name)
        if made.uninterpreted:
            return
        try:
            comment = _comment(options)
            for key in _keys(made, entry):
                made.elements[key] = Element(key, comment=comment)
        except NotInterpretedError:
            made.uninterpreted = " ".join(("add", name, entry, *map(plain, options)))

    def _delete(self, words: list[str]) -> None:
        name, entry, *_ = _at_least(2, words, "del")
        made = self._there(name)
        try:
            for key in _keys(made, entry):
                made.elements.pop(key, None)
        except NotInterpretedError:
            made.uninterpreted = f"del {name} {entry}"

    def _flush(self, words: list[str]) -> None:
        for name in words or self.sets:
            self._there(name).elements.clear()

    def _destroy(self, words: list[str]) -> None:
        for name in words or list(self.sets):
            self._there(name)
            del self.sets[name]

    def _there(self, name: str) -> _Made:
        found = self.sets.get(name)
        if found is None:
            msg = f"the set {quoted(name)} was not created above: the capture is not whole, take it again"
            raise CaptureError(msg)
        return found


def _at_least(count: int, words: list[str], verb: str) -> list[str]:
    if len(words) < count:
        msg = f"the line ends early: {verb} has {count} words at least"
        raise CaptureError(msg)
    return [plain(word) for word in words[:count]] + words[count:]


def _made(kind: str, options: list[str]) -> _Made:
    method, _, what = kind.partition(":")
    parts = tuple(what.split(","))
    found = _create_options(options)
    uninterpreted = found.get("unknown", "")
    if method not in ("hash", "bitmap") or not _DIMENSIONS.issuperset(parts):
        uninterpreted = kind
    length = found.get("netmask")
    return _Made(
        method=method,
        parts=parts,
        version=_version(kind, found.get("family", "inet")),
        prefix_length=int(length) if length is not None and length.isdecimal() and len(length) <= len("128") else None,
        uninterpreted=uninterpreted,
        elements={},
    )


def _version(kind: str, family: str) -> IpVersion | None:
    """Return the family of a set's addresses; ``bitmap:port`` and sets of sets are of both (ip_set_bitmap_port.c)."""
    if kind in ("bitmap:port", "list:set"):
        return None
    return 6 if family == "inet6" else 4


def _create_options(words: list[str]) -> dict[str, str]:
    """Return what was said when a set was made, and what of it is ``unknown``."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in ("family", "netmask"):
            found[word] = next(rest, "")
        elif word in _OPTIONS:
            next(rest, None)
        elif word not in _FLAGS:
            found.setdefault("unknown", plain(word))
    return found


def _comment(options: list[str]) -> str:
    """Return the comment among an entry's options; whatever else changes what it means is not interpreted."""
    found = ""
    words = iter(options)
    for word in words:
        if word in _ENTRY_OPTIONS:
            value = plain(next(words, ""))
            found = value if word == "comment" else found
        elif word not in _FLAGS:
            raise NotInterpretedError(word)
    return found


def _keys(made: _Made, entry: str) -> list[tuple[KeyPart, ...]]:
    """Return the keys that an entry stands for: several where it has no protocol, or where a network is cut up."""
    texts = entry.split(",")
    if len(texts) != len(made.parts):
        msg = f"{quoted(entry)} is no entry of a set of {','.join(made.parts)}"
        raise CaptureError(msg)
    choices = [_choices(made, part, text) for part, text in zip(made.parts, texts, strict=True)]
    return [tuple(part for parts in chosen for part in parts) for chosen in product(*choices)]


def _choices(made: _Made, part: str, text: str) -> list[tuple[KeyPart, ...]]:
    if part != "port":
        return [(_addresses(made, text),)]
    name, has_protocol, port = text.rpartition(":")
    if made.method == "bitmap":
        # A bitmap has numbers alone, and the kernel looks at those of TCP and UDP (ip_set_getport.c).
        return [(each, _one_or_range(*ports(text, "-")[0])) for each in (TCP, UDP)]
    asked = protocol(name) if has_protocol else TCP
    return [(asked, _ports(asked, port))]


def _ports(asked: int, text: str) -> KeyPart:
    if asked in _WITH_PORTS:
        return _one_or_range(*ports(text, "-")[0])
    if asked in (1, 58):
        # Type and code, where others have a port; there are names for them, too.
        kind, is_pair, code = text.partition("/")
        if not is_pair:
            raise NotInterpretedError(text)
        return number(kind, 255) << 8 | number(code, 255)
    return _ALL_PORTS


def _addresses(made: _Made, text: str) -> KeyPart:
    version: IpVersion = made.version or 4
    if "-" in text:
        ((first, last),) = span(text, version)
    else:
        first, last = network_of(text, version)
    if made.prefix_length is not None:
        size = 1 << max(WIDTHS[version] - made.prefix_length, 0)
        first, last = first & ~(size - 1), last | (size - 1)
    return _one_or_range(first, last)


def _one_or_range(first: int, last: int) -> KeyPart:
    return first if first == last else (first, last)
