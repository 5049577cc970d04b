"""Converts the JSON of constants in expressions and elements to numbers or inclusive ranges.

Constants are addresses, protocols, ports, marks and priorities. A name that nft does not print by default (of a host, a
service) raises NotInterpretedError. A value of an unexpected JSON type raises CaptureError.
"""

import enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from knft.errors import CaptureError
from knft.interpret.errors import NotInterpretedError
from knft.interpret.ranges import Ranges, network, ranges
from knft.protocols import SCTP, TCP, UDP

Span = tuple[int, int]


class ValueKind(enum.Enum):
    """The type of a number: its name, and its width in bits."""

    ADDRESS4 = "IPv4 address", 32
    ADDRESS6 = "IPv6 address", 128
    PROTOCOL = "protocol", 8
    PORT = "port", 16
    MARK = "mark", 32
    PRIORITY = "priority", 32
    NUMBER = "number", 32

    @property
    def width(self) -> int:
        """The width in bits."""
        return self.value[1]

    @property
    def full_range(self) -> Span:
        """The range of all numbers of the kind."""
        return 0, (1 << self.width) - 1


# libnftables prints names of /etc/protocols; these are Debian's, and those built into nft.
_PROTOCOLS = {
    "ip": 0, "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "ipv4": 4, "st": 5, "tcp": TCP,
    "egp": 8, "igp": 9, "pup": 12, "udp": UDP, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "dccp": 33,
    "xtp": 36, "ddp": 37, "idpr-cmtp": 38, "ipv6": 41, "ipv6-route": 43, "ipv6-frag": 44, "idrp": 45, "rsvp": 46,
    "gre": 47, "esp": 50, "ipv6-crypt": 50, "ah": 51, "ipv6-auth": 51, "skip": 57, "ipv6-icmp": 58, "icmpv6": 58,
    "ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73, "vmtp": 81, "eigrp": 88, "ospf": 89, "ospfigp": 89,
    "ax.25": 93, "ipip": 94, "etherip": 97, "encap": 98, "pim": 103, "comp": 108, "ipcomp": 108, "vrrp": 112,
    "carp": 112, "l2tp": 115, "isis": 124, "sctp": SCTP, "fc": 133, "mobility-header": 135, "udplite": 136,
    "mpls-in-ip": 137, "manet": 138, "hip": 139, "shim6": 140, "wesp": 141, "rohc": 142, "ethernet": 143,
}  # fmt: skip


def number(value: Any, kind: ValueKind) -> int:
    """Return a constant as a number."""
    if isinstance(value, str):
        return _number_of_name(value, kind)
    if type(value) is not int:
        msg = f"invalid {kind.value[0]} {value!r}"
        raise CaptureError(msg)
    if not 0 <= value <= kind.full_range[1]:
        msg = f"{kind.value[0]} {value} is out of range"
        raise CaptureError(msg)
    return value


def _number_of_name(text: str, kind: ValueKind) -> int:
    if kind is ValueKind.PROTOCOL and text in _PROTOCOLS:
        return number(_PROTOCOLS[text], kind)
    if kind is ValueKind.PRIORITY:
        return _priority(text)
    try:
        if kind is ValueKind.ADDRESS4:
            return int(IPv4Address(text))
        if kind is ValueKind.ADDRESS6:
            return int(IPv6Address(text))
    except ValueError as error:
        raise NotInterpretedError(text) from error
    raise NotInterpretedError(text)


def _priority(text: str) -> int:
    """Return a priority, which nft lists as a class of tc(8): ``1:2`` is 0x10002."""
    if text in _PRIORITIES:
        return _PRIORITIES[text]
    major, colon, minor = text.partition(":")
    try:
        high, low = int(major or "0", 16), int(minor or "0", 16)
    except ValueError as error:
        raise NotInterpretedError(text) from error
    if not colon or max(high, low) > 0xFFFF:  # noqa: PLR2004 - 16 bits each
        raise NotInterpretedError(text)
    return (high << 16) + low


_PRIORITIES = {"none": 0, "root": 0xFFFFFFFF}


def span(value: Any, kind: ValueKind) -> Span:
    """Return the range of a constant, a prefix, a range, or the ``*`` of a catch-all element."""
    match value:
        case {"prefix": {"addr": address, "len": length}}:
            if type(length) is not int or not 0 <= length <= kind.width:
                msg = f"invalid prefix length {length!r} of an {kind.value[0]}"
                raise CaptureError(msg)
            return network(number(address, kind), length, kind.width)[0]
        case {"range": [first, last]}:
            low, high = number(first, kind), number(last, kind)
            if low > high:
                msg = f"empty range {first!r} to {last!r}"
                raise CaptureError(msg)
            return low, high
        case dict():
            raise NotInterpretedError
        case "*":
            return kind.full_range
    only = number(value, kind)
    return only, only


def spans(values: list[Any], kind: ValueKind) -> Ranges:
    """Return the ranges of several constants."""
    return ranges(span(value, kind) for value in values)


def address_kind_of(text: Any) -> ValueKind:
    """Return the kind of address of a constant, a prefix or a range."""
    match text:
        case {"prefix": {"addr": str(inner)}} | {"range": [str(inner), _]}:
            return address_kind_of(inner)
        case str():
            return ValueKind.ADDRESS6 if ":" in text else ValueKind.ADDRESS4
        case dict():
            raise NotInterpretedError
    msg = f"invalid address {text!r}"
    raise CaptureError(msg)
