"""Constants of expressions and elements as numbers: addresses, protocols, ports, marks, ranges of them.

JSON in, inclusive ranges out. A constant that is spelled in a way nft does not print by default (a host's name, a
service's) is ``Uninterpreted``; one that is of no type a constant has is ``Malformed``.
"""

import enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.ranges import Ranges, network, ranges

Span = tuple[int, int]


class Kind(enum.Enum):
    """What a number is; the value is how many bits it has."""

    ADDRESS4 = "IPv4 address", 32
    ADDRESS6 = "IPv6 address", 128
    PROTOCOL = "protocol", 8
    PORT = "port", 16
    MARK = "mark", 32
    NUMBER = "number", 32

    @property
    def width(self) -> int:
        """How many bits it has."""
        return self.value[1]

    @property
    def all(self) -> Span:
        """Every number of the kind."""
        return 0, (1 << self.width) - 1


# /etc/protocols of Debian, and the names that nft brings along: libnftables asks the machine on which it lists.
_PROTOCOLS = {
    "ip": 0, "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "ipip": 4, "ipv4": 4, "st": 5, "tcp": 6,
    "egp": 8, "igp": 9, "pup": 12, "udp": 17, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "dccp": 33,
    "xtp": 36, "ddp": 37, "idpr-cmtp": 38, "ipv6": 41, "ipv6-route": 43, "ipv6-frag": 44, "idrp": 45, "rsvp": 46,
    "gre": 47, "esp": 50, "ipv6-crypt": 50, "ah": 51, "ipv6-auth": 51, "skip": 57, "ipv6-icmp": 58, "icmpv6": 58,
    "ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73, "vmtp": 81, "eigrp": 88, "ospf": 89, "ospfigp": 89,
    "ax.25": 93, "etherip": 97, "encap": 98, "pim": 103, "comp": 108, "ipcomp": 108, "vrrp": 112, "carp": 112,
    "l2tp": 115, "isis": 124, "sctp": 132, "fc": 133, "mobility-header": 135, "udplite": 136, "mpls-in-ip": 137,
    "manet": 138, "hip": 139, "shim6": 140, "wesp": 141, "rohc": 142, "ethernet": 143,
}  # fmt: skip


def number(value: Any, kind: Kind) -> int:
    """Return a constant as a number."""
    if isinstance(value, str):
        return _spelled(value, kind)
    if type(value) is not int:
        msg = f"{value!r} is no {kind.value[0]}"
        raise Malformed(msg)
    if not 0 <= value <= kind.all[1]:
        msg = f"{value} is beyond any {kind.value[0]}"
        raise Malformed(msg)
    return value


def _spelled(text: str, kind: Kind) -> int:
    if kind is Kind.PROTOCOL and text in _PROTOCOLS:
        return number(_PROTOCOLS[text], kind)
    try:
        if kind is Kind.ADDRESS4:
            return int(IPv4Address(text))
        if kind is Kind.ADDRESS6:
            return int(IPv6Address(text))
    except ValueError as error:
        raise Uninterpreted(text) from error
    raise Uninterpreted(text)


def span(value: Any, kind: Kind) -> Span:
    """Return a constant, a prefix, a range, or the ``*`` of a catch-all element, as the numbers that it covers."""
    match value:
        case {"prefix": {"addr": address, "len": length}}:
            if type(length) is not int or not 0 <= length <= kind.width:
                msg = f"{length!r} is no prefix length of an {kind.value[0]}"
                raise Malformed(msg)
            return network(number(address, kind), length, kind.width)[0]
        case {"range": [first, last]}:
            low, high = number(first, kind), number(last, kind)
            if low > high:
                msg = f"the range {first!r} to {last!r} is empty"
                raise Malformed(msg)
            return low, high
        case dict():
            raise Uninterpreted
        case "*":
            return kind.all
    only = number(value, kind)
    return only, only


def spans(values: list[Any], kind: Kind) -> Ranges:
    """Return what several constants cover together."""
    return ranges(span(value, kind) for value in values)


def as_address(text: Any) -> Kind:
    """Return which kind of address a constant, a prefix or a range is."""
    match text:
        case {"prefix": {"addr": str(inner)}} | {"range": [str(inner), _]}:
            return as_address(inner)
        case str():
            return Kind.ADDRESS6 if ":" in text else Kind.ADDRESS4
        case dict():
            raise Uninterpreted
    msg = f"{text!r} is no address"
    raise Malformed(msg)
