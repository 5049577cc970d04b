"""Ways that are known already: most packets that have been translated fare alike, whichever endpoint they go to.

What follows translation depends on the endpoint's address only as far as the rules mention it. So the rest of the way
is walked once for all addresses that no rule tells apart, and for all packets, whatever their box.
"""

from bisect import bisect_right
from collections.abc import Hashable
from itertools import pairwise
from typing import NamedTuple

from knft.interpret.constants import Constants, singles, wide
from knft.interpret.outcomes import STATES, Box, Fate, Memory
from knft.interpret.ranges import ADDRESSES, PORTS, Ranges
from knft.interpret.rules import Rule, RuleSet
from knft.interpret.walk.packet import Packet

_MULTICAST = {4: (0xE0000000, 0xEFFFFFFF), 6: (0xFF << 120, (1 << 128) - 1)}


class Ending(NamedTuple):
    """How some packets end: the packet as it was then, and the rules that it met on the rest of its way."""

    packet: Packet
    fate: Fate
    rules: tuple[tuple[str, Rule], ...]


class Unmentioned:
    """Sorts addresses that no rule mentions one by one: those of a group are the same to all rules."""

    def __init__(self, rules: RuleSet, own: Ranges) -> None:
        """Go through all rules."""
        constants = Constants((rules,))
        mentioned = constants.destinations() | set(own) | set(rules.bound)
        self._alone = singles(mentioned)
        self._tests_originals = constants.tests_originals
        networks = wide((*mentioned, _MULTICAST[rules.version]))
        self._edges = sorted({edge for first, last in networks for edge in (first, last + 1)})
        groups: dict[tuple[tuple[int, int], ...], int] = {}
        self._groups = [0]
        for first, _ in pairwise((*self._edges, -1)):
            around = tuple(network for network in networks if network[0] <= first <= network[1])
            self._groups.append(groups.setdefault(around, len(groups)))

    def group(self, address: int) -> int | None:
        """Return the group of an address, or None where a rule mentions it."""
        if address in self._alone or self._tests_originals:
            return None
        return self._groups[bisect_right(self._edges, address)]


def whole_box(version: int, packet: Packet) -> Box:
    """Return all packets that there can be on the rest of a packet's way."""
    return Box(PORTS, ADDRESSES[version], PORTS, packet.box.inputs, packet.box.outputs, STATES)


def state_of(packet: Packet, group: int, memory: frozenset[Memory]) -> Hashable:
    """Return all that the rest of a packet's way can depend on, but its box."""
    return (
        group,
        packet.stage.hook,
        packet.stage.again,
        packet.origin,
        packet.protocol,
        packet.port,
        packet.is_local,
        packet.mark,
        packet.translated,
        packet.is_redirected,
        packet.new_source,
        packet.source,
        packet.inputs,
        packet.outputs,
        packet.box.inputs,
        packet.box.outputs,
        packet.server,
        memory,
    )
