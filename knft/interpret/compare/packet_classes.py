"""Enumerates the packet classes that two rule sets can distinguish by destination, origin and protocol.

Each destination that a rule mentions by itself is a class of its own. All other destinations are grouped by the
mentioned networks that contain them. Each group gives two classes: addresses of other hosts, and addresses that may
belong to the node but are not in ``node_addresses``. Sources, ports, interfaces and states are split during the walk.
"""

from collections.abc import Iterator
from itertools import chain, pairwise, product

from msgspec import Struct
from msgspec.structs import replace

from knft.families import IpVersion
from knft.interpret.mentioned_values import MentionedValues, address_blocks, single_addresses
from knft.interpret.outcomes import STATES, TRACKED_STATES, Origin, PacketClass, PacketFields
from knft.interpret.ranges import (
    ADDRESSES,
    EMPTY,
    LOOPBACK,
    NON_UNICAST,
    PORTS,
    Ranges,
    contains,
    intersection,
    ranges,
    single,
    subtract,
)
from knft.protocols import PROTOCOL_NAMES

_UNMENTIONED_PROTOCOL = 253
"""Represents all protocols that no rule mentions (reserved for experiments, RFC 3692)."""


class DestinationClass(Struct, frozen=True):
    """Destination addresses that the rules do not distinguish; ``address`` represents all of ``ranges``."""

    address: int
    ranges: Ranges
    is_local: bool
    is_shareable: bool = True
    """Whether a comparison's result can be shared with other destinations: no rule matches it in a list or inverted."""


class PacketClasses:
    """The packet classes of one IP family.

    ``node_addresses`` are the known addresses of the node; it can have others too. In IPVS mode it has no others,
    because kube-proxy adds virtual servers for each of them. ``ipvs_addresses`` are then the addresses of kube-ipvs0,
    from which no other host sends; None in the other modes.
    """

    def __init__(
        self, version: IpVersion, values: MentionedValues, node_addresses: Ranges, ipvs_addresses: Ranges | None = None
    ) -> None:
        """Derive the classes from the values that both rule sets mention."""
        self._has_all_node_addresses = ipvs_addresses is not None
        self._taken = ranges((*(ipvs_addresses or ()), *node_addresses, *LOOPBACK[version]))
        self._version = version
        self._node_addresses = ranges((*node_addresses, *LOOPBACK[version]))
        self._values = values
        self._mentioned_sources = single_addresses(values.sources())
        self._usable = subtract(ADDRESSES[version], NON_UNICAST[version])
        self._interfaces = frozenset(_names(values.interfaces))
        self._node_sources = self._sources_of_node()

    @property
    def mentioned_ports(self) -> Ranges:
        """The destination ports that rules match independently of the destination address."""
        return self._values.ports()

    def destinations(self) -> list[DestinationClass]:
        """Return all classes of destinations."""
        mentioned = self._values.destinations()
        singles = {address for address in single_addresses(mentioned) if contains(self._usable, address)}
        singles |= {first for first, last in self._node_addresses if first == last}
        classes = [
            DestinationClass(
                address, ((address, address),), contains(self._node_addresses, address), self._is_shareable(address)
            )
            for address in sorted(singles)
        ]
        covered = ranges((address, address) for address in singles)
        for group in _groups(address_blocks(chain(mentioned, self._node_addresses)), self._usable):
            rest = subtract(group, covered)
            for is_local in (False, True):
                # The node can have addresses that are not in node_addresses, except in IPVS mode.
                members = intersection(rest, self._node_addresses) if is_local else subtract(rest, self._node_addresses)
                members = members or (rest if is_local and not self._has_all_node_addresses else EMPTY)
                if members:
                    is_shareable = is_local and not self._values.matches_original_destination
                    classes.append(DestinationClass(members[0][0], members, is_local, is_shareable))
        return classes

    def _is_shareable(self, address: int) -> bool:
        return (
            not self._values.matches_original_destination
            and address not in self._values.destinations_of_multi_range_tests
        )

    def split_off_new_destinations(
        self, destination: DestinationClass, new_destinations: set[int]
    ) -> list[DestinationClass]:
        """Return classes of their own for destinations that rules translate the rest of their class to.

        Packets to these destinations are not translated, unlike the others of the class.
        """
        if destination.is_local or _size(destination.ranges) == 1:
            return []
        members = sorted(target for target in new_destinations if contains(destination.ranges, target))
        classes = [
            DestinationClass(target, single(target), contains(self._node_addresses, target), is_shareable=False)
            for target in members
        ]
        rest = subtract(destination.ranges, ranges((target, target) for target in members))
        if destination.address in members and rest:
            # A target does not represent the rest of the class: choose another address.
            classes.append(replace(destination, address=rest[0][0], ranges=rest))
        return classes

    def packets(self, destination: DestinationClass) -> Iterator[PacketClass]:
        """Yield the packet classes to a destination: by origin, by protocol, and with or without a connection."""
        for origin in self._origins(destination):
            fields = self._fields(origin, destination)
            is_source_selected = origin == "node" and contains(fields.sources, destination.address)
            for protocol, states in product(self.protocols(), (TRACKED_STATES, STATES - TRACKED_STATES)):
                yield PacketClass(
                    origin,
                    protocol,
                    destination.address,
                    destination.is_local,
                    fields._replace(states=states),
                    is_source_selected=is_source_selected,
                )

    def protocols(self) -> list[int]:
        """Return the protocols that rules distinguish, and one that represents all others."""
        return sorted({*PROTOCOL_NAMES, *self._values.protocols(), _UNMENTIONED_PROTOCOL})

    def _origins(self, destination: DestinationClass) -> tuple[Origin, ...]:
        # The kernel drops packets from the network to loopback addresses.
        return ("node",) if contains(LOOPBACK[self._version], destination.address) else ("network", "node")

    def _fields(self, origin: Origin, destination: DestinationClass) -> PacketFields:
        loopback = LOOPBACK[self._version]
        if origin == "network":
            others = subtract(self._usable, self._taken)
            if destination.address in self._mentioned_sources:
                # A host does not send to its own address through the node.
                others = subtract(others, single(destination.address))
            return PacketFields(PORTS, others, inputs=self._interfaces, outputs=self._interfaces)
        if contains(loopback, destination.address):
            return PacketFields(PORTS, ranges((*loopback, *self._node_sources)), outputs=self._interfaces)
        return PacketFields(PORTS, self._node_sources, outputs=self._interfaces)

    def _sources_of_node(self) -> Ranges:
        """Return the addresses that the node can send from: its known ones, and others that it could have.

        Rules do not distinguish addresses that are in the same networks, so a few addresses represent each group.
        """
        others = self._mentioned_sources - {first for first, last in self._node_addresses if first == last}
        taken = ranges((address, address) for address in others)
        free = subtract(subtract(self._usable, LOOPBACK[self._version]), taken)
        known = intersection(free, self._node_addresses)
        groups = _groups(address_blocks(self._values.sources()), self._usable)
        return ranges((*known, *(pair for group in groups for pair in intersection(free, group)[:1])))


def _size(addresses: Ranges) -> int:
    return sum(last - first + 1 for first, last in addresses)


def _names(mentioned: set[str]) -> Iterator[str]:
    """Yield one name for each class of interfaces, except loopback."""
    yield "*"
    yield from mentioned - {"lo", ""}


def _groups(networks: list[tuple[int, int]], everything: Ranges) -> Iterator[Ranges]:
    """Yield groups of addresses that are in the same networks."""
    edges = sorted({edge for first, last in (*networks, *everything) for edge in (first, last + 1)})
    groups: dict[tuple[tuple[int, int], ...], list[tuple[int, int]]] = {}
    for first, after in pairwise(edges):
        if contains(everything, first):
            containing = tuple(network for network in networks if network[0] <= first <= network[1])
            groups.setdefault(containing, []).append((first, after - 1))
    for pairs in groups.values():
        yield ranges(pairs)
