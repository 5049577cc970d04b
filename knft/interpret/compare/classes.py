"""All classes of packets that two rule sets can tell apart by where packets go, and by whom they come from.

Destinations that are mentioned one by one are classes of their own. All others fall into as many as there are different
sets of networks around them, each twice: an address of somebody else, and one that the node has without anybody having
said so. Sources, ports, interfaces and states are split on the way through the rules.
"""

from collections.abc import Iterator
from itertools import chain, pairwise, product

from msgspec import Struct
from msgspec.structs import replace

from knft.interpret.constants import Constants, singles, wide
from knft.interpret.outcomes import CONNECTIONS, STATES, Box, Origin, Packets
from knft.interpret.ranges import ADDRESSES, LOOPBACK, NOTHING, PORTS, Ranges, common, contains, ranges, single, without
from knft.interpret.rules import IpVersion

PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp"}
_NO_ADDRESSES: dict[IpVersion, Ranges] = {
    4: ((0, (1 << 24) - 1), (224 << 24, (1 << 32) - 1)),
    6: ((0, 0), (0xFF << 120, (1 << 128) - 1)),
}
"""What nobody has: the unspecified addresses, multicast, broadcast and reserved ones."""
_UNMENTIONED_PROTOCOL = 253
"""For experiments (RFC 3692): stands for all that no rule mentions."""


class Destination(Struct, frozen=True):
    """A class of destinations: one of its addresses stands for all."""

    address: int
    ranges: Ranges
    is_local: bool
    is_plain: bool = True
    """Whether rules that mention it are about it alone."""


class Classes:
    """The classes of one family.

    ``own`` are the addresses that the node is known to have; it may have any other too. Where IPVS works, it does not:
    kube-proxy has listed the node's addresses, and nobody else sends from those that are ``bound`` to its device.
    """

    def __init__(self, version: IpVersion, constants: Constants, own: Ranges, bound: Ranges | None = None) -> None:
        """Sort what the rule sets mention."""
        self._knows_all = bound is not None
        self._taken = ranges((*(bound or ()), *own, *LOOPBACK[version]))
        self._version = version
        self._own = ranges((*own, *LOOPBACK[version]))
        self._constants = constants
        self._senders = singles(constants.sources())
        self._real = without(ADDRESSES[version], _NO_ADDRESSES[version])
        self._interfaces = frozenset(_names(constants.interfaces))
        self._own_senders = self._sources_of_node()

    @property
    def mentioned_ports(self) -> Ranges:
        """The destination ports that rules speak of, whoever is dialled."""
        return self._constants.ports()

    def destinations(self) -> list[Destination]:
        """Return all classes of destinations."""
        mentioned = self._constants.destinations()
        alone = {address for address in singles(mentioned) if contains(self._real, address)}
        alone |= {first for first, last in self._own if first == last}
        found = [
            Destination(address, ((address, address),), contains(self._own, address), self._is_plain(address))
            for address in sorted(alone)
        ]
        there = ranges((address, address) for address in alone)
        for group in _groups(wide(chain(mentioned, self._own)), self._real):
            rest = without(group, there)
            for is_local in (False, True):
                # An address that nobody has spoken of may be the node's; of its own only it has all.
                where = common(rest, self._own) if is_local else without(rest, self._own)
                where = where or (rest if is_local and not self._knows_all else NOTHING)
                if where:
                    found.append(
                        Destination(where[0][0], where, is_local, is_local and not self._constants.tests_originals)
                    )
        return found

    def _is_plain(self, address: int) -> bool:
        return not self._constants.tests_originals and address not in self._constants.exceptions

    def apart(self, destination: Destination, targets: set[int]) -> list[Destination]:
        """Return destinations of a class to which rules send the others of it: who dials them is not translated."""
        if destination.is_local or _size(destination.ranges) == 1:
            return []
        found = sorted(target for target in targets if contains(destination.ranges, target))
        alone = [Destination(target, single(target), contains(self._own, target), is_plain=False) for target in found]
        rest = without(destination.ranges, ranges((target, target) for target in found))
        if destination.address in found and rest:
            # It was no example of the others.
            alone.append(replace(destination, address=rest[0][0], ranges=rest))
        return alone

    def packets(self, destination: Destination) -> Iterator[Packets]:
        """Yield the packets to a destination: from outside and from the node, by protocol, in connections or not."""
        for origin in self._origins(destination):
            box = self._box(origin, destination)
            for protocol, states in product(self.protocols(), (CONNECTIONS, STATES - CONNECTIONS)):
                there = box._replace(states=states)
                yield Packets(origin, protocol, destination.address, destination.is_local, there)

    def protocols(self) -> list[int]:
        """Return the protocols that are told apart, one for all others among them."""
        return sorted({*PROTOCOLS, *self._constants.protocols(), _UNMENTIONED_PROTOCOL})

    def _origins(self, destination: Destination) -> tuple[Origin, ...]:
        # The kernel takes no packet to a loopback address from outside.
        return ("node",) if contains(LOOPBACK[self._version], destination.address) else ("network", "node")

    def _box(self, origin: Origin, destination: Destination) -> Box:
        loopback = LOOPBACK[self._version]
        if origin == "network":
            others = without(self._real, self._taken)
            if destination.address in self._senders:
                # Nobody sends to himself by way of others; where no rule speaks of him as a sender, it is all the same.
                others = without(others, single(destination.address))
            return Box(PORTS, others, inputs=self._interfaces, outputs=self._interfaces)
        if contains(loopback, destination.address):
            return Box(PORTS, ranges((*loopback, *self._own_senders)), outputs=self._interfaces)
        return Box(PORTS, self._own_senders, outputs=self._interfaces)

    def _sources_of_node(self) -> Ranges:
        """Return what the node may send from: its own addresses, and some that no rule knows for somebody else's.

        Of these, rules tell no two apart that the same networks contain: a few of each group stand for all.
        """
        others = self._senders - {first for first, last in self._own if first == last}
        known = ranges((address, address) for address in others)
        free = without(without(self._real, LOOPBACK[self._version]), known)
        own = common(free, self._own)
        groups = _groups(wide(self._constants.sources()), self._real)
        return ranges((*own, *(pair for group in groups for pair in common(free, group)[:1])))


def _size(where: Ranges) -> int:
    return sum(last - first + 1 for first, last in where)


def _names(mentioned: set[str]) -> Iterator[str]:
    """Yield a name for each class of interfaces but loopback."""
    yield "*"
    yield from mentioned - {"lo", ""}


def _groups(networks: list[tuple[int, int]], everything: Ranges) -> Iterator[Ranges]:
    """Yield addresses in groups that the same networks contain."""
    edges = sorted({edge for first, last in (*networks, *everything) for edge in (first, last + 1)})
    groups: dict[tuple[tuple[int, int], ...], list[tuple[int, int]]] = {}
    for first, after in pairwise(edges):
        if contains(everything, first):
            around = tuple(network for network in networks if network[0] <= first <= network[1])
            groups.setdefault(around, []).append((first, after - 1))
    for pairs in groups.values():
        yield ranges(pairs)
