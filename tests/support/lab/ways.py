"""The four ways to dial, in which the lab's own tests make each claim."""

from typing import NamedTuple

from .outcomes import Protocol
from .plan import Version
from .topology import Host

PORT = 8080
"""Where everybody answers in these tests."""


class Way(NamedTuple):
    """One family and one protocol; each claim is tested in all four."""

    version: Version
    protocol: Protocol

    @property
    def family(self) -> str:
        """The family as nft spells it."""
        return "ip" if self.version == 4 else "ip6"

    @property
    def virtual(self) -> str:
        """A Service address, which nobody has."""
        return "10.96.0.10" if self.version == 4 else "fd00:10:96::10"

    def to(self, host: Host) -> str:
        """Return the address of a host."""
        return host.address(self.version)

    def __str__(self) -> str:
        """Return a short name for test reports."""
        return f"{self.protocol}{self.version}"


PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
WAYS = [Way(4, "tcp"), Way(4, "udp"), Way(6, "tcp"), Way(6, "udp")]
