"""Reads what options say: addresses, networks, ports, protocols, marks and chances."""

import ipaddress
from fractions import Fraction
from functools import lru_cache

from knft.errors import CaptureError
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.words import quoted
from knft.interpret.ranges import PORTS, Ranges, ranges, single
from knft.interpret.rules import IpVersion

TCP, UDP, SCTP, UDPLITE, DCCP = 6, 17, 132, 136, 33
ALL_BITS = 0xFFFFFFFF

_PROTOCOLS = {
    "hopopt": 0,
    "icmp": 1,
    "igmp": 2,
    "ipencap": 4,
    "ipip": 94,
    "tcp": TCP,
    "egp": 8,
    "udp": UDP,
    "dccp": DCCP,
    "ipv6": 41,
    "ipv6-route": 43,
    "ipv6-frag": 44,
    "rsvp": 46,
    "gre": 47,
    "esp": 50,
    "ipv6-crypt": 50,
    "ah": 51,
    "ipv6-auth": 51,
    "icmp6": 58,
    "icmpv6": 58,
    "ipv6-icmp": 58,
    "ipv6-nonxt": 59,
    "ipv6-opts": 60,
    "eigrp": 88,
    "ospf": 89,
    "encap": 98,
    "pim": 103,
    "ipcomp": 108,
    "vrrp": 112,
    "l2tp": 115,
    "sctp": SCTP,
    "mh": 135,
    "ipv6-mh": 135,
    "mobility-header": 135,
    "udplite": UDPLITE,
}
"""By the names that the programs and /etc/protocols have for them; any other name is not interpreted."""

_ADDRESS: dict[int, type[ipaddress.IPv4Address | ipaddress.IPv6Address]] = {
    4: ipaddress.IPv4Address,
    6: ipaddress.IPv6Address,
}
WIDTHS: dict[int, int] = {4: 32, 6: 128}
"""The bits of an address, by the version of IP."""

_LAST_PORT, _LAST_PROTOCOL = 0xFFFF, 255
_LONGEST = 64


def number(text: str, last: int) -> int:
    """Return a number, decimal, or hexadecimal after ``0x``; raise NotInterpretedError for a name or anything else."""
    digits, base = (text[2:], 16) if text[:2] in ("0x", "0X") else (text, 10)
    # int() takes more: blanks, signs, underscores, digits of other scripts.
    if not (digits.isascii() and digits.isalnum() and len(digits) < _LONGEST):
        raise NotInterpretedError(text)
    try:
        found = int(digits, base)
    except ValueError as error:
        raise NotInterpretedError(text) from error
    if found > last:
        raise NotInterpretedError(text)
    return found


def port(text: str) -> int:
    """Return a port."""
    return number(text, _LAST_PORT)


def protocol(text: str) -> int:
    """Return a protocol's number."""
    known = _PROTOCOLS.get(text.lower())
    return number(text, _LAST_PROTOCOL) if known is None else known


def ports(text: str, between: str = ":") -> Ranges:
    """Return ports: one, or two with ``between`` between them, of which each may be left out."""
    first, is_range, last = text.partition(between)
    if not is_range:
        return single(port(text))
    low, high = port(first) if first else PORTS[0][0], port(last) if last else PORTS[0][1]
    return _ordered(low, high, text)


def _ordered(first: int, last: int, text: str) -> Ranges:
    if first > last:
        raise NotInterpretedError(text)
    return ((first, last),)


def address(text: str, version: IpVersion) -> int:
    """Return an address; raise CaptureError where it is none, or of the other family."""
    try:
        return int(_ADDRESS[version]("" if "%" in text else text))  # a zone is an interface's, and no address's
    except ValueError as error:
        raise CaptureError(_no_address(text, version)) from error


def _no_address(text: str, version: IpVersion) -> str:
    try:
        found = ipaddress.ip_interface(text)
    except ValueError:
        return f"{quoted(text)} is no IPv{version} address"
    return (
        f"{quoted(text)} is an IPv{found.version} address, in rules of IPv{version}: "
        "read what iptables-save printed as IPv4, and what ip6tables-save printed as IPv6"
    )


@lru_cache(4096)
def network(text: str, version: IpVersion) -> tuple[int, int]:
    """Return the first and the last address of a network, whose mask is a length or an address."""
    where, has_mask, mask = text.partition("/")
    first = address(where, version)
    if not has_mask:
        return first, first
    size = 1 << (WIDTHS[version] - _length(mask, version))
    first &= ~(size - 1)
    return first, first + size - 1


def _length(mask: str, version: IpVersion) -> int:
    """Return a mask's length; a mask with holes is not interpreted."""
    width = WIDTHS[version]
    if "." not in mask and ":" not in mask:
        return number(mask, width)
    bits = address(mask, version)
    holes = ~bits & ((1 << width) - 1)
    if holes & (holes + 1):
        raise NotInterpretedError(mask)
    return width - holes.bit_length()


def networks(text: str, version: IpVersion) -> Ranges:
    """Return the addresses of networks with commas between them."""
    if "," not in text:
        return (network(text, version),)
    return ranges(network(item, version) for item in text.split(","))


def span(text: str, version: IpVersion) -> Ranges:
    """Return the addresses from one to another, with ``-`` between them, or one."""
    first, is_range, last = text.partition("-")
    low = address(first, version)
    return _ordered(low, address(last, version) if is_range else low, text)


def masked(text: str) -> tuple[int, int]:
    """Return a mark and its mask, all bits where there is none."""
    value, has_mask, mask = text.partition("/")
    return number(value, ALL_BITS), number(mask, ALL_BITS) if has_mask else ALL_BITS


_TOLERANCE = Fraction(5, 10**10)
_SIMPLE = 10_000


@lru_cache(1024)
def chance(text: str) -> Fraction:
    """Return the probability that was meant.

    kube-proxy writes 1/n with ten digits (off by 5e-11 at most), the kernel keeps parts of 2^31 (2.4e-10), and
    iptables-save prints eleven digits (5e-12): what was 1/n comes back within 3e-10 of it, and 5e-10 is taken for
    equal. That is unambiguous up to n = 31 622: from there on 1/n and 1/(n + 1) are less than 1e-9 apart. Other
    fractions, of denominators up to 10 000 (1e-8 apart), come back in the same way: 0.33 is saved as 0.32999999984.
    """
    whole, _, digits = text.partition(".")
    if not (f"{whole}{digits}".isascii() and f"{whole}{digits}".isdigit() and len(text) < _LONGEST):
        raise NotInterpretedError(text)
    said = Fraction(f"{whole or '0'}.{digits or '0'}")
    if not 0 < said <= 1:
        return _none_or_more(said, text)
    for meant in (Fraction(1, round(1 / said)), said.limit_denominator(_SIMPLE)):
        if abs(meant - said) <= _TOLERANCE:
            return meant
    return said


def _none_or_more(said: Fraction, text: str) -> Fraction:
    if said:
        raise NotInterpretedError(text)
    return said
