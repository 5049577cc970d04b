"""IP families: one type for all packages, with the names in nftables, netlink and IP headers."""

import enum
from typing import Literal

NftFamily = Literal["ip", "ip6"]
"""A family in nftables, as name of a table's family and of the header in expressions."""

IpVersion = Literal[4, 6]
"""A family as the version field of an IP header."""


class Family(enum.Enum):
    """An IP family, spelled as EndpointSlices and metric labels spell it."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    # Enum's own is in Python and hashes the name; a sync looks families up dozens of times.
    __hash__ = object.__hash__

    @property
    def nft(self) -> NftFamily:
        """The name of the family in nftables."""
        return "ip" if self is Family.IPV4 else "ip6"

    @property
    def version(self) -> IpVersion:
        """The version of the IP header."""
        return 4 if self is Family.IPV4 else 6

    @property
    def number(self) -> int:
        """AF_INET or AF_INET6, which are also NFPROTO_IPV4 and NFPROTO_IPV6."""
        return 2 if self is Family.IPV4 else 10


FAMILY_OF_VERSION: dict[int, Family] = {family.version: family for family in Family}
FAMILY_OF_NUMBER: dict[int, Family] = {family.number: family for family in Family}


def family_of(address: str) -> Family:
    """Return the family of a valid address."""
    return Family.IPV6 if ":" in address else Family.IPV4
