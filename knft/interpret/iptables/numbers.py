"""Reads the values of options: addresses, networks, ports, protocols, marks and probabilities."""

import ipaddress
from fractions import Fraction
from functools import lru_cache

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import NotInterpretedError, abbreviated
from knft.interpret.ranges import PORTS, Ranges, ranges, single
from knft.protocols import SCTP, TCP, UDP

UDPLITE, DCCP = 136, 33
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
"""By the names in iptables and in Debian's /etc/protocols; other names are not interpreted."""

_ADDRESS: dict[int, type[ipaddress.IPv4Address | ipaddress.IPv6Address]] = {
    4: ipaddress.IPv4Address,
    6: ipaddress.IPv6Address,
}
WIDTHS: dict[int, int] = {4: 32, 6: 128}
"""The number of bits of an address, by IP version."""

_LAST_PORT, _LAST_PROTOCOL = 0xFFFF, 255
_MAX_LENGTH = 64


def number(text: str, last: int) -> int:
    """Return a decimal number, or a hexadecimal one after ``0x``; raise NotInterpretedError for any other text."""
    digits, base = (text[2:], 16) if text[:2] in ("0x", "0X") else (text, 10)
    # int() also accepts blanks, signs, underscores and digits of other scripts.
    if not (digits.isascii() and digits.isalnum() and len(digits) < _MAX_LENGTH):
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
    """Return the number of a protocol."""
    known = _PROTOCOLS.get(text.lower())
    return number(text, _LAST_PROTOCOL) if known is None else known


def ports(text: str, separator: str = ":") -> Ranges:
    """Return a port, or a range of ports whose ends may be omitted."""
    first, is_range, last = text.partition(separator)
    if not is_range:
        return single(port(text))
    low, high = port(first) if first else PORTS[0][0], port(last) if last else PORTS[0][1]
    return _ordered(low, high, text)


def _ordered(first: int, last: int, text: str) -> Ranges:
    if first > last:
        raise NotInterpretedError(text)
    return ((first, last),)


def address(text: str, version: IpVersion) -> int:
    """Return an address; raise CaptureError if it is invalid or of the other family."""
    try:
        return int(_ADDRESS[version]("" if "%" in text else text))  # rules have no addresses with a zone
    except ValueError as error:
        raise CaptureError(_address_error(text, version)) from error


def _address_error(text: str, version: IpVersion) -> str:
    try:
        found = ipaddress.ip_interface(text)
    except ValueError:
        return f"invalid IPv{version} address {abbreviated(text)}"
    return (
        f"{abbreviated(text)} is an IPv{found.version} address in IPv{version} rules: "
        "pass the output of iptables-save for IPv4 and of ip6tables-save for IPv6"
    )


@lru_cache(4096)
def network(text: str, version: IpVersion) -> tuple[int, int]:
    """Return the first and last address of a network; its mask is a prefix length or an address."""
    where, has_mask, mask = text.partition("/")
    first = address(where, version)
    if not has_mask:
        return first, first
    size = 1 << (WIDTHS[version] - _prefix_length(mask, version))
    first &= ~(size - 1)
    return first, first + size - 1


def _prefix_length(mask: str, version: IpVersion) -> int:
    """Return the prefix length of a mask; a mask that is not contiguous is not interpreted."""
    width = WIDTHS[version]
    if "." not in mask and ":" not in mask:
        return number(mask, width)
    bits = address(mask, version)
    host_bits = ~bits & ((1 << width) - 1)
    if host_bits & (host_bits + 1):
        raise NotInterpretedError(mask)
    return width - host_bits.bit_length()


def networks(text: str, version: IpVersion) -> Ranges:
    """Return the addresses of comma-separated networks."""
    if "," not in text:
        return (network(text, version),)
    return ranges(network(item, version) for item in text.split(","))


def address_range(text: str, version: IpVersion) -> Ranges:
    """Return the addresses of a range such as ``10.0.0.1-10.0.0.9``, or one address."""
    first, is_range, last = text.partition("-")
    low = address(first, version)
    return _ordered(low, address(last, version) if is_range else low, text)


def mark_and_mask(text: str) -> tuple[int, int]:
    """Return a mark and its mask; the mask defaults to all bits."""
    value, has_mask, mask = text.partition("/")
    return number(value, ALL_BITS), number(mask, ALL_BITS) if has_mask else ALL_BITS


_TOLERANCE = Fraction(5, 10**10)
_MAX_DENOMINATOR = 10_000


@lru_cache(1024)
def probability(text: str) -> Fraction:
    """Return the exact probability of a rounded decimal.

    kube-proxy writes 1/n with ten digits (error at most 5e-11), the kernel stores multiples of 2^-31 (2.4e-10), and
    iptables-save prints eleven digits (5e-12). So 1/n is printed within 3e-10, and any text within 5e-10 of 1/n is
    read as 1/n. That is unambiguous up to n = 31 622, above which 1/n and 1/(n + 1) are less than 1e-9 apart. Other
    fractions with denominators up to 10 000 (1e-8 apart) are read in the same way: 0.33 is saved as 0.32999999984.
    """
    whole, _, digits = text.partition(".")
    if not (f"{whole}{digits}".isascii() and f"{whole}{digits}".isdigit() and len(text) < _MAX_LENGTH):
        raise NotInterpretedError(text)
    stated = Fraction(f"{whole or '0'}.{digits or '0'}")
    if not 0 < stated <= 1:
        return _zero_or_invalid(stated, text)
    for exact in (Fraction(1, round(1 / stated)), stated.limit_denominator(_MAX_DENOMINATOR)):
        if abs(exact - stated) <= _TOLERANCE:
            return exact
    return stated


def _zero_or_invalid(stated: Fraction, text: str) -> Fraction:
    if stated:
        raise NotInterpretedError(text)
    return stated
