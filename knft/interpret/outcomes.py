"""What becomes of packets: classes of them, ways through the rules, and outcomes at their ends."""

import enum
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from knft.interpret.ranges import PORTS, Ranges, common
from knft.interpret.rules import Rule, State, Step

Origin = Literal["network", "node"]
"""Who sends: somebody whose packets come in by an interface, pods of this node among them; or a process of the node."""

STATES: frozenset[State] = frozenset({"new", "established", "invalid"})
"""Packets that open a connection, later ones, and those that conntrack can place nowhere."""
CONNECTIONS: frozenset[State] = STATES - {"invalid"}
"""Those that belong to a connection."""


class Box(NamedTuple):
    """A class of packets with one destination address and one protocol: all combinations of these.

    Interfaces are names, ``veth*`` for all that begin so and have no longer entry, ``*`` for the rest; packets of local
    processes come in by none, which is the empty name.
    """

    ports: Ranges
    sources: Ranges
    source_ports: Ranges = PORTS
    inputs: frozenset[str] = frozenset({""})
    outputs: frozenset[str] = frozenset({"*"})
    states: frozenset[State] = STATES


def overlap(one: Box, other: Box) -> Box | None:
    """Return the packets that are in both boxes, or None."""
    extents: list[Any] = []
    sides: Iterable[tuple[Any, Any]] = zip(one, other, strict=True)
    for mine, yours in sides:
        both = mine
        if mine is not yours and mine != yours:
            both = mine & yours if isinstance(mine, frozenset) else common(mine, yours)
            if not both:
                return None
        extents.append(both)
    return Box(*extents)


class Packets(Struct, frozen=True):
    """All packets of a box to one address; ``is_local`` tells whether the node has that address itself."""

    origin: Origin
    protocol: int
    destination: int
    is_local: bool
    box: Box


Memory = tuple[str, tuple[int, ...]]
"""What a collection remembers of a client: its name, and the rest of the key."""


class Fate(enum.Enum):
    """How a packet ends."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    DROPPED = "dropped"
    UNDECIDED = "undecided"


NewSource = int | Literal["kept", "masqueraded", "frontend"]
"""The source that an endpoint sees: the client's own, the node's, the frontend's, or another address."""


class Outcome(NamedTuple):
    """What a client can see: the end, the endpoint, and the source address that the endpoint sees.

    ``address`` and ``port`` are None where they stay as they were; ``seconds`` is for how long the client will be sent
    to the same endpoint.
    """

    fate: Fate
    address: int | None = None
    port: int | None = None
    source: NewSource = "kept"
    seconds: int | None = None

    @property
    def is_translated(self) -> bool:
        """Whether somebody else than the dialled address gets the packet."""
        return self.address is not None or self.port is not None


class Passed(NamedTuple):
    """A rule that a packet met, and whose tests it passed; ``before`` are the rules met before it.

    ``did`` is what the rule did to the packet, where that is recorded: maps' answers stand in place of the lookups.
    """

    chain: str
    rule: Rule
    before: "Passed | None"
    did: tuple[Step, ...] = ()


def with_rules(trail: Passed | None, more: Iterable[tuple[str, Rule]]) -> Passed | None:
    """Return a trail with rules after it, the first one first."""
    for chain, rule in more:
        trail = Passed(chain, rule, trail)
    return trail


def rules_of(trail: Passed | None) -> list[tuple[str, Rule]]:
    """Return the rules of a trail with their chains, the first one first."""
    found = []
    while trail is not None:
        found.append((trail.chain, trail.rule))
        trail = trail.before
    return found[::-1]


class Path(NamedTuple):
    """A way through the rules: ``share`` of the packets in ``box`` go it.

    ``looked_up`` and ``remembered`` are what was asked about the client, and what will be known of it after.
    """

    box: Box
    share: Fraction
    outcome: Outcome
    trail: Passed | None
    looked_up: frozenset[Memory]
    remembered: frozenset[Memory]
