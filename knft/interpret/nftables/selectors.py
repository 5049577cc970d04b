"""Converts an expression, the left side of a match or a part of a key, to a selector: the value read from a packet.

The expressions are those of nft(8): payload, meta, ct, fib, numgen and others. Packets are assumed to be of one IP
version, not fragmented, and without extension headers or IP options.
"""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.marks import Mark, read_mark
from knft.interpret.nftables.values import ValueKind, number
from knft.interpret.ranges import single
from knft.interpret.rules import Field, HashedFields, KeyPart, Never, RandomNumber, Step, Within
from knft.protocols import PROTOCOL_NUMBERS


class Number(Struct, frozen=True):
    """An expression with a numeric value, such as ``tcp dport`` or ``ip saddr``.

    ``implicit_tests`` are the tests that nft adds before the expression, such as ``meta l4proto tcp``. ``mask``
    are the bits that are compared; a key cannot have a masked field.
    """

    kind: ValueKind
    part: KeyPart
    implicit_tests: tuple[Step, ...] = ()
    mask: int | None = None


class InterfaceName(Struct, frozen=True):
    """The expression ``iifname`` or ``oifname``; nft lists the indexes of ``iif`` and ``oif`` as names, too."""

    field: Literal[Field.INPUT, Field.OUTPUT]


Domain = Literal["state", "status", "source type", "destination type", "type on interface", "packet type"]


class Symbol(Struct, frozen=True):
    """An expression with symbolic values, such as ``ct state``, ``ct status``, ``fib ... type`` or ``meta pkttype``.

    nft lists a value as a word, or as several words joined by ``|``; ``numbers`` has the words of the numbers that
    ``nft -n`` lists instead.

    ``mask`` are the words that are compared.
    """

    domain: Domain
    numbers: dict[int, str]
    mask: tuple[str | int, ...] | None = None


class Constant(Struct, frozen=True):
    """A value that is the same for all packets; ``spellings`` are the forms in which nft lists it."""

    spellings: tuple[str | int | bool, ...]


class FirstPacketFlags(Struct, frozen=True):
    """Flags that are ``bits`` in the first packet of a connection, and unknown in later packets."""

    bits: int
    names: dict[str, int]
    implicit_tests: tuple[Step, ...] = ()
    mask: int | None = None


class UninterpretedSelector(Struct, frozen=True):
    """An expression that is not interpreted, except its implicit tests."""

    implicit_tests: tuple[Step, ...] = ()


Selector = Number | Mark | InterfaceName | Symbol | Constant | FirstPacketFlags | UninterpretedSelector
_UNINTERPRETED = UninterpretedSelector()
_NEVER = UninterpretedSelector((Never(),))

_STATES = {1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked"}
_STATUS = {16: "snat", 32: "dnat"}
# linux/rtnetlink.h, RTN_*
_ADDRESS_TYPES = {
    1: "unicast", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole", 7: "unreachable",
    8: "prohibit",
}  # fmt: skip
_PACKET_TYPES = {0: "host", 1: "broadcast", 2: "multicast", 3: "other"}
_TCP_FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128}
_PROTOCOL_NUMBERS = {
    **PROTOCOL_NUMBERS, "dccp": 33, "udplite": 136, "icmp": 1, "igmp": 2, "icmpv6": 58, "esp": 50,
    "ah": 51, "comp": 108, "gre": 47,
}  # fmt: skip
_PROTOCOLS_WITH_PORTS = frozenset({"tcp", "udp", "sctp", "dccp", "udplite", "th"})
_PORTS = {"sport": Field.SOURCE_PORT, "dport": Field.DESTINATION_PORT}
_ADDRESSES = {"saddr": Field.SOURCE, "daddr": Field.DESTINATION}
_IP_VERSION_OF: dict[str, IpVersion] = {"ip": 4, "icmp": 4, "igmp": 4, "ip6": 6, "icmpv6": 6}
_ORIGINAL = {
    "saddr": Field.ORIGINAL_SOURCE, "ip saddr": Field.ORIGINAL_SOURCE, "ip6 saddr": Field.ORIGINAL_SOURCE,
    "daddr": Field.ORIGINAL_DESTINATION, "ip daddr": Field.ORIGINAL_DESTINATION,
    "ip6 daddr": Field.ORIGINAL_DESTINATION,
}  # fmt: skip


def address_kind(version: IpVersion) -> ValueKind:
    """Return the kind of the addresses of an IP version."""
    return ValueKind.ADDRESS4 if version == 4 else ValueKind.ADDRESS6  # noqa: PLR2004 - it is IPv4


def protocol_test(protocol: int) -> Step:
    """Return the test that nft adds before an expression that reads a transport header."""
    return Within(Field.PROTOCOL, single(protocol))


def read_selector(left: Any, version: IpVersion) -> Selector:
    """Return the selector of an expression; raise CaptureError if nft cannot have listed it."""
    if not isinstance(left, dict) or len(left) != 1:
        if isinstance(left, (dict, str)):
            return _UNINTERPRETED
        msg = f"invalid expression {left!r}"
        raise CaptureError(msg)
    ((form, inner),) = left.items()
    if form in ("&", "|", "^"):
        return _read_masked(left, inner, version)
    return _READERS.get(form, _uninterpreted)(inner, version)


def _uninterpreted(_inner: Any, _version: IpVersion) -> Selector:
    return _UNINTERPRETED


def _read_masked(whole: Any, operands: Any, version: IpVersion) -> Selector:
    """Return a calculation with the mark, or another number with a mask."""
    if (mark := read_mark(whole)) is not None:
        return mark
    if "&" not in whole or not isinstance(operands, list) or len(operands) != 2:  # noqa: PLR2004 - a field and a mask
        return _UNINTERPRETED
    inner, mask = read_selector(operands[0], version), operands[1]
    try:
        return _apply_mask(inner, mask)
    except NotInterpretedError:
        return UninterpretedSelector(inner.implicit_tests if isinstance(inner, Number | FirstPacketFlags) else ())


def _apply_mask(inner: Selector, mask: Any) -> Selector:
    match inner:
        case Number(kind, part, implicit_tests, None):
            return Number(kind, part, implicit_tests, number(mask, kind))
        case FirstPacketFlags(bits, names, implicit_tests, None):
            return FirstPacketFlags(bits, names, implicit_tests, flag_bits(mask, names))
        case Symbol(domain, numbers, None):
            return Symbol(domain, numbers, _mask_words(mask))
        case Constant((0, *_)) if type(mask) is int and not mask & _DONT_FRAGMENT:
            return inner
    raise NotInterpretedError


_DONT_FRAGMENT = 0x4000


def _mask_words(mask: Any) -> tuple[str | int, ...]:
    match mask:
        case {"|": list(words)} | list(words):
            return tuple(word for each in words for word in _mask_words(each))
        case str() | int() if not isinstance(mask, bool):
            return (mask,)
    raise NotInterpretedError


def flag_bits(value: Any, names: dict[str, int]) -> int:
    """Return flags as a number; nft lists a word, a number, a list, or operands of ``|``."""
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
    raise NotInterpretedError


def _read_payload(inner: Any, version: IpVersion) -> Selector:
    match inner:
        # The inner header of a tunnel also has "tunnel"; a raw payload has "base".
        case {"protocol": str(protocol), "field": str(field)} if len(inner) == 2:  # noqa: PLR2004 - these two
            if _IP_VERSION_OF.get(protocol, version) != version:
                return _NEVER
            if protocol in ("ip", "ip6"):
                return _ip_field(field, version)
            return _transport_field(protocol, field)
        case dict():
            return _UNINTERPRETED
    msg = f"invalid payload expression {inner!r}"
    raise CaptureError(msg)


def _ip_field(field: str, version: IpVersion) -> Selector:
    if field in _ADDRESSES:
        return Number(address_kind(version), _ADDRESSES[field])
    if field in ("protocol", "nexthdr"):
        return Number(ValueKind.PROTOCOL, Field.PROTOCOL)
    if field == "version":
        return Constant((version,))
    if field == "frag-off":
        return Constant((0,))
    return _UNINTERPRETED


def _transport_field(protocol: str, field: str) -> Selector:
    implicit_tests = (protocol_test(_PROTOCOL_NUMBERS[protocol]),) if protocol in _PROTOCOL_NUMBERS else ()
    if protocol in _PROTOCOLS_WITH_PORTS and field in _PORTS:
        return Number(ValueKind.PORT, _PORTS[field], implicit_tests)
    if (protocol, field) == ("tcp", "flags"):
        return FirstPacketFlags(_TCP_FLAGS["syn"], _TCP_FLAGS, implicit_tests)
    if (protocol, field) == ("ether", "type"):
        return _UNINTERPRETED
    return UninterpretedSelector(implicit_tests)


def _read_meta(inner: Any, version: IpVersion) -> Selector:
    match inner:
        case {"key": "nfproto"}:
            return _FAMILY[version]
        case {"key": "protocol"}:
            return _ETHERTYPE[version]
        case {"key": str(key)}:
            return _META.get(key, _UNINTERPRETED)
    msg = f"invalid meta expression {inner!r}"
    raise CaptureError(msg)


_META: dict[str, Selector] = {
    "l4proto": Number(ValueKind.PROTOCOL, Field.PROTOCOL),
    "mark": Mark(),
    "priority": Number(ValueKind.PRIORITY, Field.PRIORITY),
    "iif": InterfaceName(Field.INPUT),
    "iifname": InterfaceName(Field.INPUT),
    "oif": InterfaceName(Field.OUTPUT),
    "oifname": InterfaceName(Field.OUTPUT),
    "pkttype": Symbol("packet type", _PACKET_TYPES),
}
_FAMILY: dict[int, Constant] = {4: Constant(("ipv4", 2)), 6: Constant(("ipv6", 10))}
_ETHERTYPE: dict[int, Constant] = {4: Constant(("ip", 0x0800)), 6: Constant(("ip6", 0x86DD))}
_DIRECTIONS = {"original": 0, "reply": 1}


def _read_ct(inner: Any, version: IpVersion) -> Selector:
    match inner:
        case {"key": "l3proto"}:
            return _FAMILY[version]
        case {"key": str(key), "dir": "original"} if key not in _CT:
            return _original_tuple_field(key, version)
        case {"key": str(key)}:
            return _CT.get(key, _UNINTERPRETED)
    msg = f"invalid ct expression {inner!r}"
    raise CaptureError(msg)


_CT: dict[str, Selector] = {
    "state": Symbol("state", _STATES),
    "status": Symbol("status", _STATUS),
    "direction": FirstPacketFlags(_DIRECTIONS["original"], _DIRECTIONS),
    "protocol": Number(ValueKind.PROTOCOL, Field.PROTOCOL),
}


def _original_tuple_field(key: str, version: IpVersion) -> Selector:
    family = key.partition(" ")[0]
    if _IP_VERSION_OF.get(family, version) != version:
        return _NEVER
    if key in _ORIGINAL:
        return Number(address_kind(version), _ORIGINAL[key])
    if key == "proto-dst":
        return Number(ValueKind.PORT, Field.ORIGINAL_PORT)
    return _UNINTERPRETED


def _read_fib(inner: Any, _version: IpVersion) -> Selector:
    match inner:
        case {"result": str(result), "flags": flags} if isinstance(flags, str | list):
            flags_used = {flags} if isinstance(flags, str) else {str(flag) for flag in flags}
            return _fib_result(result, flags_used)
    msg = f"invalid fib expression {inner!r}"
    raise CaptureError(msg)


def _fib_result(result: str, flags_used: set[str]) -> Selector:
    """Return the selector of a routing lookup; policy routing by mark is ignored."""
    flags_used -= {"mark"}
    if result == "type" and flags_used == {"saddr"}:
        return Symbol("source type", _ADDRESS_TYPES)
    if result == "type" and flags_used == {"daddr"}:
        return Symbol("destination type", _ADDRESS_TYPES)
    if result == "type" and flags_used == {"daddr", "iif"}:
        return Symbol("type on interface", _ADDRESS_TYPES)
    if result in ("oif", "oifname", "check") and "saddr" in flags_used:
        # Reverse path filter: packets are assumed to arrive on the interface that leads to their source. A comparison
        # with an interface name is not interpreted.
        return Constant((True,))
    return _UNINTERPRETED


def _read_extension_header(inner: Any, _version: IpVersion) -> Selector:
    """Return a test for an extension header; packets have none, so a rule that reads a field never matches."""
    if isinstance(inner, dict) and "name" in inner:
        return _NEVER if "field" in inner else Constant((False,))
    msg = f"invalid extension header {inner!r}"
    raise CaptureError(msg)


def _read_number_generator(inner: Any, _version: IpVersion) -> Selector:
    match inner:
        case {"mode": "random" | "inc", "mod": int(modulus)} if type(modulus) is int and modulus > 0:
            offset = inner.get("offset", 0)
            if type(offset) is int and offset >= 0:
                return Number(ValueKind.NUMBER, RandomNumber(modulus, offset) if modulus > 1 else offset)
    msg = f"invalid number generator {inner!r}"
    raise CaptureError(msg)


def _read_hash(inner: Any, version: IpVersion) -> Selector:
    match inner:
        case {"mod": int(modulus), "expr": expression} if type(modulus) is int and modulus > 0:
            hashed = read_key(expression, version)
            seed = inner.get("seed")
            is_read = not inner.get("offset") and all(
                isinstance(part, Number) and isinstance(part.part, Field) and part.mask is None for part in hashed
            )
            if type(seed) is not int or not is_read:  # Without a seed, the kernel chooses one.
                return _UNINTERPRETED
            return _hash_of([part for part in hashed if isinstance(part, Number)], modulus, seed)
    msg = f"invalid hash {inner!r}"
    raise CaptureError(msg)


def _hash_of(hashed: list[Number], modulus: int, seed: int) -> Selector:
    fields = tuple((part.part, part.kind.width // 8) for part in hashed if isinstance(part.part, Field))
    implicit_tests = tuple(step for part in hashed for step in part.implicit_tests)
    return Number(ValueKind.NUMBER, HashedFields(fields, modulus, seed) if modulus > 1 else 0, implicit_tests)


_READERS: dict[str, Callable[[Any, IpVersion], Selector]] = {
    "payload": _read_payload,
    "meta": _read_meta,
    "ct": _read_ct,
    "fib": _read_fib,
    "exthdr": _read_extension_header,
    "ip option": _read_extension_header,
    "numgen": _read_number_generator,
    "jhash": _read_hash,
}


def read_key(expression: Any, version: IpVersion) -> tuple[Selector, ...]:
    """Return the selectors of a key: one for each part of a concatenation, one for any other expression."""
    match expression:
        case {"concat": [_, *_] as parts}:
            return tuple(read_selector(part, version) for part in parts)
        case {"concat": parts}:
            msg = f"invalid concatenation {parts!r}"
            raise CaptureError(msg)
    return (read_selector(expression, version),)
