"""Groups endpoint addresses so that the walk after destination translation is done once per group.

After translation, the rest of the path depends on the endpoint's address only as far as rules mention it. The walker
computes it once for all addresses that no rule distinguishes and for all values of the packet fields, and caches it
under ``cache_key``.
"""

from bisect import bisect_right
from collections.abc import Hashable
from itertools import pairwise
from typing import NamedTuple

from knft.interpret.mentioned_values import MentionedValues, address_blocks, single_addresses
from knft.interpret.outcomes import STATES, AffinityEntry, Disposition, PacketFields, RuleHit
from knft.interpret.ranges import ADDRESSES, PORTS, Ranges
from knft.interpret.rules import RuleSet
from knft.interpret.walk.packet import PacketState

_MULTICAST = {4: (0xE0000000, 0xEFFFFFFF), 6: (0xFF << 120, (1 << 128) - 1)}


class WalkEnd(NamedTuple):
    """The end of a walk: the packet's last state, and the rules that it hit after the trail of that state."""

    packet: PacketState
    disposition: Disposition
    hits: tuple[RuleHit, ...]


class AddressGroups:
    """Groups of addresses that the rules do not distinguish."""

    def __init__(self, rules: RuleSet, node_addresses: Ranges) -> None:
        """Collect the addresses that the rules mention."""
        values = MentionedValues((rules,))
        mentioned = values.destinations() | set(node_addresses) | set(rules.ipvs_addresses)
        self._single_addresses = single_addresses(mentioned)
        self._matches_original_destination = values.matches_original_destination
        networks = address_blocks((*mentioned, _MULTICAST[rules.version]))
        self._edges = sorted({edge for first, last in networks for edge in (first, last + 1)})
        groups: dict[tuple[tuple[int, int], ...], int] = {}
        self._groups = [0]
        for first, _ in pairwise((*self._edges, -1)):
            containing = tuple(network for network in networks if network[0] <= first <= network[1])
            self._groups.append(groups.setdefault(containing, len(groups)))

    def group(self, address: int) -> int | None:
        """Return the group of an address, or None if a rule mentions the address itself."""
        if address in self._single_addresses or self._matches_original_destination:
            return None
        return self._groups[bisect_right(self._edges, address)]


def all_packet_fields(version: int, packet: PacketState) -> PacketFields:
    """Return all field values that packets can have on the path after destination translation."""
    return PacketFields(PORTS, ADDRESSES[version], PORTS, packet.fields.inputs, packet.fields.outputs, STATES)


def cache_key(packet: PacketState, group: int, affinity: frozenset[AffinityEntry]) -> Hashable:
    """Return everything that the rest of a packet's path depends on, except its fields."""
    return (
        group,
        packet.stage.hook,
        packet.stage.nat_is_done,
        packet.origin,
        packet.protocol,
        packet.port,
        packet.is_local,
        packet.mark,
        packet.own_mark,
        packet.lost_mark,
        packet.priority,
        packet.is_translated,
        packet.is_redirected,
        packet.new_source,
        packet.source,
        packet.inputs,
        packet.outputs,
        packet.fields.inputs,
        packet.fields.outputs,
        packet.server,
        affinity,
    )
