"""IPVS: virtual servers, found by what a packet dials, and the real servers that it is sent to."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from fractions import Fraction
from typing import NamedTuple

from knft.interpret.outcomes import Memory
from knft.interpret.ranges import Ranges
from knft.interpret.rules import Server
from knft.interpret.walk.packet import Packet

SERVERS = "ipvs"
"""The name under which the persistence of virtual servers is remembered."""


class ServerTable:
    """All virtual servers of a rule set."""

    def __init__(self, servers: Iterable[Server]) -> None:
        """Sort them by address and protocol."""
        self._ports: dict[tuple[int, int], dict[int, Server]] = {}
        for server in servers:
            self._ports.setdefault((server.address, server.protocol), {})[server.port] = server

    def at(self, address: int, protocol: int) -> dict[int, Server]:
        """Return the servers at an address, by port."""
        return self._ports.get((address, protocol), {})


class AtServers(NamedTuple):
    """The question whether there are virtual servers at a destination."""

    servers: ServerTable
    protocol: int

    def answer(self, destination: int, _: Ranges) -> bool | None:
        """Return False where there are none, and None where there are some."""
        return None if self.servers.at(destination, self.protocol) else False


def sent(
    packet: Packet, server: Server, memory: frozenset[Memory], is_local: Callable[[int], bool]
) -> Iterator[Packet]:
    """Yield the packet as it is sent to each real server; nothing where there is none.

    Shares follow the weights, whatever the scheduler's order is.
    """
    targets = [target for target in server.targets if target[2]]
    looked_up: frozenset[Memory] = frozenset()
    if server.seconds is not None:
        looked_up = frozenset(_memory(server, target) for target in targets)
        targets = [target for target in targets if _memory(server, target) in memory] or targets
    total = sum(weight for _, _, weight in targets)
    for target in targets:
        address, port, weight = target
        other = copy(packet)
        other.share = packet.share * Fraction(weight, total)
        other.server = server
        other.looked_up |= looked_up
        if server.seconds is not None:
            other.remembered |= {_memory(server, target)}
        other.redirect(address, port, is_local=is_local(address))
        yield other


def _memory(server: Server, target: tuple[int, int, int]) -> Memory:
    return SERVERS, (server.address, server.protocol, server.port, *target[:2])
