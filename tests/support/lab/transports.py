"""The four combinations of IP family and protocol, for the lab's own tests."""

from typing import NamedTuple

from tests.support.lab.outcomes import Protocol
from tests.support.lab.plan import Version
from tests.support.lab.topology import Host

PORT = 8080
"""The port of all servers in these tests."""


class Transport(NamedTuple):
    """One IP family and one protocol."""

    version: Version
    protocol: Protocol

    @property
    def family(self) -> str:
        """The family in nft's syntax."""
        return "ip" if self.version == 4 else "ip6"

    @property
    def virtual(self) -> str:
        """A Service address, which no host has."""
        return "10.96.0.10" if self.version == 4 else "fd00:10:96::10"

    def address_of(self, host: Host) -> str:
        """Return the address of a host."""
        return host.address(self.version)

    def __str__(self) -> str:
        """Return a short name for test reports."""
        return f"{self.protocol}{self.version}"


PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
TRANSPORTS = [Transport(4, "tcp"), Transport(4, "udp"), Transport(6, "tcp"), Transport(6, "udp")]
