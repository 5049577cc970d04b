"""IP addresses and networks as canonical text.

Text is what the API sends and what nftables reads, so it is what the stages carry; these functions are the
only place that parses it. They accept leading zeros in IPv4 octets, as the Kubernetes API does (A.3), and read
them as decimal.
"""

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

from knft.families import Family

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# Nearly all addresses; ipaddress takes ten times as long to say the same.
_CANONICAL_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_VERSIONS = {4: Family.IPV4, 6: Family.IPV6}


def _decimal(text: str) -> str:
    return text if ":" in text else _LEADING_ZEROS.sub("", text)


@lru_cache(maxsize=1 << 10)
def parse_address(text: str) -> tuple[Family, str] | None:
    """Return the family and canonical text of an address, or None if ``text`` is not one."""
    if _CANONICAL_IPV4.fullmatch(text):
        return Family.IPV4, text
    try:
        address = ipaddress.ip_address(_decimal(text))
    except ValueError:
        return None
    if address.version == 6:  # noqa: PLR2004 - the IP version itself
        if address.scope_id is not None:
            return None
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
    return _VERSIONS[address.version], str(address)


@lru_cache(maxsize=1 << 10)
def parse_network(text: str) -> tuple[Family, str] | None:
    """Return the family and canonical text of a CIDR (host bits cleared), or None if ``text`` is not one."""
    address, slash, length = text.strip().partition("/")
    # ipaddress also takes "10.0.0.0/255.0.0.0", which no Kubernetes field means.
    if not slash or not (length.isascii() and length.isdigit()):
        return None
    try:
        network = ipaddress.ip_network(f"{_decimal(address)}/{int(length)}", strict=False)
    except ValueError:
        return None
    return _VERSIONS[network.version], str(network)


def of_family(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the canonical addresses of ``family`` among ``texts``, order kept, the rest left out."""
    parsed = (parse_address(text) for text in texts)
    return tuple(found[1] for found in parsed if found is not None and found[0] is family)


def networks_of_family(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the canonical CIDRs of ``family`` among ``texts``, order kept, the rest left out."""
    parsed = (parse_network(text) for text in texts)
    return tuple(found[1] for found in parsed if found is not None and found[0] is family)


def collapse(networks: Iterable[str]) -> tuple[str, ...]:
    """Return the fewest CIDRs of one family that cover the same addresses, sorted.

    An interval set of the kernel refuses an element that lies inside another.
    """
    parsed = [ipaddress.ip_network(text) for text in networks]
    return tuple(str(network) for network in ipaddress.collapse_addresses(parsed))  # type: ignore[type-var]


def contains(network: str, address: str) -> bool:
    """Tell whether ``address`` lies in ``network``; both are canonical texts."""
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)


def as_network(address: str) -> str:
    """Return the CIDR of one canonical address."""
    return f"{address}/128" if ":" in address else f"{address}/32"


def without_host_length(network: str) -> str:
    """Return a canonical CIDR, or the bare address where it is only one: how the kernel lists an interval."""
    return network.removesuffix("/128" if ":" in network else "/32")


def is_loopback(address: str) -> bool:
    """Tell whether a canonical address is a loopback address."""
    return ipaddress.ip_address(address).is_loopback


def is_link_local(address: str) -> bool:
    """Tell whether a canonical address is a link-local address."""
    return ipaddress.ip_address(address).is_link_local


def is_zero_network(network: str) -> bool:
    """Tell whether a canonical CIDR is ``0.0.0.0/0`` or ``::/0``."""
    return network.endswith("/0")


_FIRST_OCTET = r"(?:[1-9][0-9]?|1[01][0-9]|12[0-68-9]|1[3-57-9][0-9]|16[0-8]|2[01][0-9]|22[0-3])"
_ORDINARY_IPV4 = re.compile(rf"{_FIRST_OCTET}(?:\.{_OCTET}){{3}}")


def are_ordinary_ipv4(texts: Iterable[str]) -> bool:
    """Tell quickly that all are canonical IPv4 addresses without a special use; where not, they may be all the same."""
    return all(map(_ORDINARY_IPV4.fullmatch, texts))


_SPECIAL_IPV4 = re.compile(r"(?:127|22[4-9]|23[0-9])\.|0\.0\.0\.0\Z|255\.255\.255\.255\Z|169\.254\.")


@lru_cache(maxsize=1 << 10)
def special_use(address: str) -> str:
    """Return what a canonical address is, in words, where it does not name one machine among others; or ""."""
    if ":" not in address and _SPECIAL_IPV4.match(address) is None:
        return ""
    parsed = ipaddress.ip_address(address)
    uses = {
        "the unspecified address": parsed.is_unspecified,
        "a loopback address": parsed.is_loopback,
        "a link-local address": parsed.is_link_local,
        "a multicast address": parsed.is_multicast,
        "the broadcast address": address == "255.255.255.255",
    }
    return next((words for words, applies in uses.items() if applies), "")


def overlaps_loopback(network: str) -> bool:
    """Tell whether a canonical CIDR holds a loopback address."""
    parsed = ipaddress.ip_network(network)
    loopback = ipaddress.ip_network("127.0.0.0/8" if parsed.version == 4 else "::1/128")  # noqa: PLR2004 - the IP version
    return parsed.overlaps(loopback)
