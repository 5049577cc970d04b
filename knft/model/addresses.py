"""IP addresses and networks as canonical text.

The API and nftables both use text, so the stages pass text; only this module parses it. As the Kubernetes API does, it
accepts leading zeros in IPv4 octets and reads them as decimal (docs/behaviour/tracking.md#service-ports).
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from knft.families import FAMILY_OF_VERSION, Family

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# Nearly all addresses match; ipaddress takes ten times as long.
_CANONICAL_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")


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
    return FAMILY_OF_VERSION[address.version], str(address)


def canonical_text(text: str) -> str:
    """Return the canonical text of an address, and any other text as it is.

    Unlike ``parse_address`` it caches no result, because there may be hundreds of thousands of addresses.
    """
    if _CANONICAL_IPV4.fullmatch(text):
        return text
    parsed = parse_address(text)
    return parsed[1] if parsed is not None else text


def canonical_texts(texts: Sequence[str]) -> Sequence[str]:
    """Return the ``canonical_text`` of each text."""
    if all(map(_CANONICAL_IPV4.fullmatch, texts)):
        return texts
    return [canonical_text(text) for text in texts]


@lru_cache(maxsize=1 << 10)
def parse_network(text: str) -> tuple[Family, str] | None:
    """Return the family and canonical text of a CIDR (host bits cleared), or None if ``text`` is not one."""
    address, slash, length = text.strip().partition("/")
    # ipaddress also accepts "10.0.0.0/255.0.0.0", which Kubernetes does not.
    if not slash or not (length.isascii() and length.isdigit()):
        return None
    try:
        network = ipaddress.ip_network(f"{_decimal(address)}/{int(length)}", strict=False)
    except ValueError:
        return None
    return FAMILY_OF_VERSION[network.version], str(network)


def of_family(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the canonical addresses of ``family`` in ``texts``, in order; others are dropped."""
    parsed = (parse_address(text) for text in texts)
    return tuple(found[1] for found in parsed if found is not None and found[0] is family)


def networks_of_family(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the canonical CIDRs of ``family`` in ``texts``, in order; others are dropped."""
    parsed = (parse_network(text) for text in texts)
    return tuple(found[1] for found in parsed if found is not None and found[0] is family)


def collapse(networks: Iterable[str]) -> tuple[str, ...]:
    """Return the fewest CIDRs of one family that cover the same addresses, sorted.

    The kernel's interval sets refuse an element that is inside another.
    """
    parsed = [ipaddress.ip_network(text) for text in networks]
    return tuple(str(network) for network in ipaddress.collapse_addresses(parsed))  # type: ignore[type-var]


def contains(network: str, address: str) -> bool:
    """Tell whether ``address`` is in ``network``; both are canonical."""
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)


def contains_network(network: str, other: str) -> bool:
    """Tell whether all addresses of ``other`` are in ``network``; both are canonical, of one family."""
    return ipaddress.ip_network(other).subnet_of(ipaddress.ip_network(network))  # type: ignore[arg-type]


def overlaps(network: str, other: str) -> bool:
    """Tell whether two canonical CIDRs have an address in common."""
    return ipaddress.ip_network(network).overlaps(ipaddress.ip_network(other))


def as_network(address: str) -> str:
    """Return the CIDR of one canonical address."""
    return f"{address}/128" if ":" in address else f"{address}/32"


def without_host_length(network: str) -> str:
    """Return a canonical CIDR, or the bare address if it has only one, as the kernel lists interval sets."""
    return network.removesuffix("/128" if ":" in network else "/32")


def is_loopback(address: str) -> bool:
    """Tell whether a canonical address is a loopback address."""
    return ipaddress.ip_address(address).is_loopback


def is_link_local(address: str) -> bool:
    """Tell whether a canonical address is a link-local address."""
    return ipaddress.ip_address(address).is_link_local


def reachable_addresses(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the canonical addresses of ``family`` in ``texts`` that other machines can reach, in order."""
    return tuple(text for text in of_family(texts, family) if not is_loopback(text) and not is_link_local(text))


def is_zero_network(network: str) -> bool:
    """Tell whether a canonical CIDR is ``0.0.0.0/0`` or ``::/0``."""
    return network.endswith("/0")


_FIRST_OCTET = r"(?:[1-9][0-9]?|1[01][0-9]|12[0-68-9]|1[3-57-9][0-9]|16[0-8]|2[01][0-9]|22[0-3])"
_ORDINARY_IPV4 = re.compile(rf"{_FIRST_OCTET}(?:\.{_OCTET}){{3}}")


def are_ordinary_ipv4(texts: Iterable[str]) -> bool:
    """Tell quickly whether all are canonical IPv4 addresses without a special use.

    May return False for such addresses too: then ``special_use`` decides.
    """
    return all(map(_ORDINARY_IPV4.fullmatch, texts))


_SPECIAL_IPV4 = re.compile(r"(?:127|22[4-9]|23[0-9])\.|0\.0\.0\.0\Z|255\.255\.255\.255\Z|169\.254\.")


@lru_cache(maxsize=1 << 10)
def special_use(address: str) -> str:
    """Return a description of an address that does not identify a single host, such as "a loopback address"; or ""."""
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
    """Tell whether a canonical CIDR contains a loopback address."""
    parsed = ipaddress.ip_network(network)
    loopback = ipaddress.ip_network("127.0.0.0/8" if parsed.version == 4 else "::1/128")  # noqa: PLR2004 - the IP version
    return parsed.overlaps(loopback)
