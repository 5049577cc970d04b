"""Simulates IPVS: finds the virtual server of a packet and sends the packet to its real servers."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from fractions import Fraction
from typing import NamedTuple

from knft.interpret.outcomes import AffinityEntry
from knft.interpret.ranges import Ranges
from knft.interpret.rules import Rule, VirtualServer
from knft.interpret.walk.packet import PacketState

PERSISTENCE = "ipvs"
"""The name of the collection in affinity entries that stand for IPVS persistence."""

IPVS_CHAIN = "IPVS"
"""The chain name in the hits that stand for IPVS; the text of the rule describes the virtual server."""

_FAIR_SCHEDULERS = frozenset({"rr", "wrr"})
"""The schedulers that choose real servers as often as their weights say, as kube-proxy's other modes do."""


class ServerTable:
    """The virtual servers of a rule set, indexed by address and protocol."""

    def __init__(self, servers: Iterable[VirtualServer]) -> None:
        """Index virtual servers."""
        self._ports: dict[tuple[int, int], dict[int, VirtualServer]] = {}
        for server in servers:
            self._ports.setdefault((server.address, server.protocol), {})[server.port] = server

    def at(self, address: int, protocol: int) -> dict[int, VirtualServer]:
        """Return the virtual servers at an address, by port."""
        return self._ports.get((address, protocol), {})


class ServersQuery(NamedTuple):
    """Query: are there virtual servers at the destination."""

    servers: ServerTable
    protocol: int

    def answer(self, destination: int, _: Ranges) -> bool | None:
        """Return False if there are none, and None if there are some."""
        return None if self.servers.at(destination, self.protocol) else False


def send_to_real_servers(
    packet: PacketState, server: VirtualServer, affinity: frozenset[AffinityEntry], is_local: Callable[[int], bool]
) -> Iterator[PacketState]:
    """Yield a copy of the packet for each real server with a weight; nothing if there is none.

    Shares are proportional to the weights, whatever the scheduler; the state names a scheduler with other shares.
    """
    targets = [target for target in server.real_servers if target[2]]
    read_entries: frozenset[AffinityEntry] = frozenset()
    if server.seconds is not None:
        read_entries = frozenset(_persistence_entry(server, target) for target in targets)
        targets = [target for target in targets if _persistence_entry(server, target) in affinity] or targets
    total = sum(weight for _, _, weight in targets)
    scheduler = server.scheduler if len(targets) > 1 and server.scheduler not in _FAIR_SCHEDULERS else ""
    for target in targets:
        address, port, weight = target
        other = copy(packet)
        other.share = packet.share * Fraction(weight, total)
        other.server, other.scheduler = server, scheduler
        other.read_entries |= read_entries
        if server.seconds is not None:
            other.written_entries |= {_persistence_entry(server, target)}
        other.redirect(address, port, is_local=is_local(address))
        yield other


def _persistence_entry(server: VirtualServer, target: tuple[int, int, int]) -> AffinityEntry:
    return PERSISTENCE, (server.address, server.protocol, server.port, *target[:2])


def server_rule(server: VirtualServer) -> Rule:
    """Return a rule whose text describes a virtual server, for the trail of packets."""
    count = len(server.real_servers)
    if not count:
        return Rule((), "a virtual server without real servers", server.line)
    text = f"virtual server, scheduler {server.scheduler}, {count} real server{'' if count == 1 else 's'}"
    return Rule((), text, server.line)
