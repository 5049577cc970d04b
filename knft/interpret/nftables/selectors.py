"""What the left side of a test, or a part of a key, looks at: an expression in, a selector out.

It knows the packet's fields and nothing of what they are compared with. The packets that are followed are whole (no
fragments), without extension headers or IP options, and of one version of IP.
"""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from knft.interpret.nftables.marks import Mark, read_mark
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.values import Kind, number
from knft.interpret.ranges import single
from knft.interpret.rules import Field, IpVersion, Never, Part, Random, Step, Within


class Number(Struct, frozen=True):
    """A number; ``needs`` are the tests that nft makes on its own before it looks, such as of the protocol.

    ``mask`` is what is looked at of it; a field that is masked is no part of a key.
    """

    kind: Kind
    part: Part
    needs: tuple[Step, ...] = ()
    mask: int | None = None


class InterfaceName(Struct, frozen=True):
    """The name of an interface, or its number, which nft lists as a name."""

    field: Literal[Field.INPUT, Field.OUTPUT]


Domain = Literal["state", "status", "source type", "destination type", "type on interface", "packet type"]


class Symbol(Struct, frozen=True):
    """One of some words, or several at once; ``numbers`` is what they are where nft lists numbers (``-n``).

    ``mask`` are those that are looked at.
    """

    domain: Domain
    numbers: dict[int, str]
    mask: tuple[str | int, ...] | None = None


class Fixed(Struct, frozen=True):
    """What is the same for all packets that are followed; ``spellings`` are the ways it may be listed."""

    spellings: tuple[str | int | bool, ...]


class FirstPacket(Struct, frozen=True):
    """Flags that are ``bits`` in the first packet of a connection, and unknown in later ones."""

    bits: int
    names: dict[str, int]
    needs: tuple[Step, ...] = ()
    mask: int | None = None


class Opaque(Struct, frozen=True):
    """What is not interpreted, beyond the tests that nft makes before it looks."""

    needs: tuple[Step, ...] = ()


Selector = Number | Mark | InterfaceName | Symbol | Fixed | FirstPacket | Opaque
_OPAQUE = Opaque()
_NEVER = Opaque((Never(),))

_STATES = {1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked"}
_STATUS = {16: "snat", 32: "dnat"}
# linux/rtnetlink.h, RTN_*
_TYPES = {
    1: "unicast", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole", 7: "unreachable",
    8: "prohibit",
}  # fmt: skip
_PACKET_TYPES = {0: "host", 1: "broadcast", 2: "multicast", 3: "other"}
_TCP_FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128}
_TRANSPORTS = {
    "tcp": 6, "udp": 17, "sctp": 132, "dccp": 33, "udplite": 136, "icmp": 1, "igmp": 2, "icmpv6": 58, "esp": 50,
    "ah": 51, "comp": 108, "gre": 47,
}  # fmt: skip
_HAVE_PORTS = frozenset({"tcp", "udp", "sctp", "dccp", "udplite", "th"})
_PORTS = {"sport": Field.SOURCE_PORT, "dport": Field.DESTINATION_PORT}
_ADDRESSES = {"saddr": Field.SOURCE, "daddr": Field.DESTINATION}
_OF_VERSION: dict[str, IpVersion] = {"ip": 4, "icmp": 4, "igmp": 4, "ip6": 6, "icmpv6": 6}
_ORIGINAL = {
    "saddr": Field.ORIGINAL_SOURCE, "ip saddr": Field.ORIGINAL_SOURCE, "ip6 saddr": Field.ORIGINAL_SOURCE,
    "daddr": Field.ORIGINAL_DESTINATION, "ip daddr": Field.ORIGINAL_DESTINATION,
    "ip6 daddr": Field.ORIGINAL_DESTINATION,
}  # fmt: skip


def address_kind(version: IpVersion) -> Kind:
    """Return the kind of this version's addresses."""
    return Kind.ADDRESS4 if version == 4 else Kind.ADDRESS6  # noqa: PLR2004 - it is IPv4


def of_protocol(protocol: int) -> Step:
    """Return the test that nft makes before it looks into a transport header."""
    return Within(Field.PROTOCOL, single(protocol))


def read_selector(left: Any, version: IpVersion) -> Selector:
    """Return what an expression looks at; one that no nft lists raises Malformed."""
    if not isinstance(left, dict) or len(left) != 1:
        if isinstance(left, (dict, str)):
            return _OPAQUE
        msg = f"{left!r} is no expression"
        raise Malformed(msg)
    ((form, inner),) = left.items()
    if form in ("&", "|", "^"):
        return _masked(left, inner, version)
    return _READERS.get(form, _opaque)(inner, version)


def _opaque(_inner: Any, _version: IpVersion) -> Selector:
    return _OPAQUE


def _masked(whole: Any, operands: Any, version: IpVersion) -> Selector:
    """Return a mark that is calculated with, or another number of which some bits are looked at."""
    if (mark := read_mark(whole)) is not None:
        return mark
    if "&" not in whole or not isinstance(operands, list) or len(operands) != 2:  # noqa: PLR2004 - a field and a mask
        return _OPAQUE
    inner, mask = read_selector(operands[0], version), operands[1]
    try:
        return _with_mask(inner, mask)
    except Uninterpreted:
        return Opaque(inner.needs if isinstance(inner, Number | FirstPacket) else ())


def _with_mask(inner: Selector, mask: Any) -> Selector:
    match inner:
        case Number(kind, part, needs, None):
            return Number(kind, part, needs, number(mask, kind))
        case FirstPacket(bits, names, needs, None):
            return FirstPacket(bits, names, needs, flag_bits(mask, names))
        case Symbol(domain, numbers, None):
            return Symbol(domain, numbers, _words(mask))
        case Fixed((0, *_)) if type(mask) is int and not mask & _DONT_FRAGMENT:
            return inner
    raise Uninterpreted


_DONT_FRAGMENT = 0x4000


def _words(mask: Any) -> tuple[str | int, ...]:
    match mask:
        case {"|": list(words)} | list(words):
            return tuple(word for each in words for word in _words(each))
        case str() | int() if not isinstance(mask, bool):
            return (mask,)
    raise Uninterpreted


def flag_bits(value: Any, names: dict[str, int]) -> int:
    """Return flags as a number: a word, a number, a list of them, or them joined by ``|``."""
    match value:
        case {"|": list(words)} | list(words):
            found = 0
            for word in words:
                found |= flag_bits(word, names)
            return found
        case str() if value in names:
            return names[value]
        case int() if type(value) is int and value >= 0:
            return value
    raise Uninterpreted


def _payload(inner: Any, version: IpVersion) -> Selector:
    match inner:
        # A tunnel's inner header has "tunnel" beside these; a raw one has "base".
        case {"protocol": str(protocol), "field": str(field)} if len(inner) == 2:  # noqa: PLR2004 - these two
            if _OF_VERSION.get(protocol, version) != version:
                return _NEVER
            if protocol in ("ip", "ip6"):
                return _ip(field, version)
            return _transport(protocol, field)
        case dict():
            return _OPAQUE
    msg = f"{inner!r} is no payload expression"
    raise Malformed(msg)


def _ip(field: str, version: IpVersion) -> Selector:
    if field in _ADDRESSES:
        return Number(address_kind(version), _ADDRESSES[field])
    if field in ("protocol", "nexthdr"):
        return Number(Kind.PROTOCOL, Field.PROTOCOL)
    if field == "version":
        return Fixed((version,))
    if field == "frag-off":
        return Fixed((0,))
    return _OPAQUE


def _transport(protocol: str, field: str) -> Selector:
    needs = (of_protocol(_TRANSPORTS[protocol]),) if protocol in _TRANSPORTS else ()
    if protocol in _HAVE_PORTS and field in _PORTS:
        return Number(Kind.PORT, _PORTS[field], needs)
    if (protocol, field) == ("tcp", "flags"):
        return FirstPacket(_TCP_FLAGS["syn"], _TCP_FLAGS, needs)
    if (protocol, field) == ("ether", "type"):
        return _OPAQUE
    return Opaque(needs)


def _meta(inner: Any, version: IpVersion) -> Selector:
    match inner:
        case {"key": "nfproto"}:
            return _FAMILY[version]
        case {"key": "protocol"}:
            return _ETHERTYPE[version]
        case {"key": str(key)}:
            return _META.get(key, _OPAQUE)
    msg = f"{inner!r} is no meta expression"
    raise Malformed(msg)


_META: dict[str, Selector] = {
    "l4proto": Number(Kind.PROTOCOL, Field.PROTOCOL),
    "mark": Mark(),
    "iif": InterfaceName(Field.INPUT),
    "iifname": InterfaceName(Field.INPUT),
    "oif": InterfaceName(Field.OUTPUT),
    "oifname": InterfaceName(Field.OUTPUT),
    "pkttype": Symbol("packet type", _PACKET_TYPES),
}
_FAMILY: dict[int, Fixed] = {4: Fixed(("ipv4", 2)), 6: Fixed(("ipv6", 10))}
_ETHERTYPE: dict[int, Fixed] = {4: Fixed(("ip", 0x0800)), 6: Fixed(("ip6", 0x86DD))}
_DIRECTIONS = {"original": 0, "reply": 1}


def _ct(inner: Any, version: IpVersion) -> Selector:
    match inner:
        case {"key": "l3proto"}:
            return _FAMILY[version]
        case {"key": str(key), "dir": "original"} if key not in _CT:
            return _original(key, version)
        case {"key": str(key)}:
            return _CT.get(key, _OPAQUE)
    msg = f"{inner!r} is no ct expression"
    raise Malformed(msg)


_CT: dict[str, Selector] = {
    "state": Symbol("state", _STATES),
    "status": Symbol("status", _STATUS),
    "direction": FirstPacket(_DIRECTIONS["original"], _DIRECTIONS),
    "protocol": Number(Kind.PROTOCOL, Field.PROTOCOL),
}


def _original(key: str, version: IpVersion) -> Selector:
    family = key.partition(" ")[0]
    if _OF_VERSION.get(family, version) != version:
        return _NEVER
    if key in _ORIGINAL:
        return Number(address_kind(version), _ORIGINAL[key])
    if key == "proto-dst":
        return Number(Kind.PORT, Field.ORIGINAL_PORT)
    return _OPAQUE


def _fib(inner: Any, _version: IpVersion) -> Selector:
    match inner:
        case {"result": str(result), "flags": flags} if isinstance(flags, str | list):
            looked_at = {flags} if isinstance(flags, str) else {str(flag) for flag in flags}
            return _route(result, looked_at)
    msg = f"{inner!r} is no fib expression"
    raise Malformed(msg)


def _route(result: str, looked_at: set[str]) -> Selector:
    """Return what is asked of the routing tables; the mark may lead to another table, which is not known here."""
    looked_at -= {"mark"}
    if result == "type" and looked_at == {"saddr"}:
        return Symbol("source type", _TYPES)
    if result == "type" and looked_at == {"daddr"}:
        return Symbol("destination type", _TYPES)
    if result == "type" and looked_at == {"daddr", "iif"}:
        return Symbol("type on interface", _TYPES)
    if result in ("oif", "oifname", "check") and "saddr" in looked_at:
        # The reverse path: packets that are followed come from where their source is. A name may not be compared.
        return Fixed((True,))
    return _OPAQUE


def _exthdr(inner: Any, _version: IpVersion) -> Selector:
    """Return that an extension header is absent; a rule ends where it asks for the field of an absent one."""
    if isinstance(inner, dict) and "name" in inner:
        return _NEVER if "field" in inner else Fixed((False,))
    msg = f"{inner!r} is no extension header"
    raise Malformed(msg)


def _numgen(inner: Any, _version: IpVersion) -> Selector:
    match inner:
        case {"mode": "random" | "inc", "mod": int(modulus)} if type(modulus) is int and modulus > 0:
            offset = inner.get("offset", 0)
            if type(offset) is int and offset >= 0:
                return Number(Kind.NUMBER, Random(modulus, offset) if modulus > 1 else offset)
    msg = f"{inner!r} is no number generator"
    raise Malformed(msg)


_READERS: dict[str, Callable[[Any, IpVersion], Selector]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _ct,
    "fib": _fib,
    "exthdr": _exthdr,
    "ip option": _exthdr,
    "numgen": _numgen,
}


def read_key(expression: Any, version: IpVersion) -> tuple[Selector, ...]:
    """Return what the parts of a key look at; an expression that is no concatenation is one part."""
    match expression:
        case {"concat": [_, *_] as parts}:
            return tuple(read_selector(part, version) for part in parts)
        case {"concat": nothing}:
            msg = f"{nothing!r} is no concatenation"
            raise Malformed(msg)
    return (read_selector(expression, version),)
