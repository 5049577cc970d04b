"""Packet classes, their paths through the rules, and the outcomes at the end of the paths."""

import enum
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from knft.interpret.ranges import PORTS, Ranges, intersection
from knft.interpret.rules import Rule, State, Step

Origin = Literal["network", "node"]
"""The origin of packets: ``network`` if they arrive on an interface (also from pods of this node), ``node`` if a
process of the node sends them."""

STATES: frozenset[State] = frozenset({"new", "established", "invalid"})
"""The conntrack states that packet classes distinguish."""
TRACKED_STATES: frozenset[State] = STATES - {"invalid"}
"""The states of packets that belong to a connection."""


class PacketFields(NamedTuple):
    """The values of the properties that vary within a packet class: the class holds all their combinations.

    ``ports`` are destination ports and ``states`` are conntrack states. An interface is a name, ``veth*`` (all names
    with this prefix that no more specific entry matches), ``*`` (all other interfaces), or the empty name (packets of
    local processes have no input interface).
    """

    ports: Ranges
    sources: Ranges
    source_ports: Ranges = PORTS
    inputs: frozenset[str] = frozenset({""})
    outputs: frozenset[str] = frozenset({"*"})
    states: frozenset[State] = STATES


def overlap(one: PacketFields, other: PacketFields) -> PacketFields | None:
    """Return the packets that both arguments contain, or None if there are none."""
    extents: list[Any] = []
    sides: Iterable[tuple[Any, Any]] = zip(one, other, strict=True)
    for first, second in sides:
        both = first
        if first is not second and first != second:
            both = first & second if isinstance(first, frozenset) else intersection(first, second)
            if not both:
                return None
        extents.append(both)
    return PacketFields(*extents)


class PacketClass(Struct, frozen=True):
    """Packets of one origin and protocol to one destination address.

    ``is_local`` tells whether the destination is an address of the node. ``fields`` are the values of all other fields.
    ``is_source_selected`` is set for packets of the node whose process has not bound its socket to an address: the
    kernel then selects the source. If the destination address is on kube-ipvs0, the kernel takes that address as
    source; if it is not, the kernel selects one of ``fields.sources``.
    """

    origin: Origin
    protocol: int
    destination: int
    is_local: bool
    fields: PacketFields
    is_source_selected: bool = False


AffinityEntry = tuple[str, tuple[int, ...]]
"""A session affinity entry of one client: the name of the set, and the key without the client's address."""


class Disposition(enum.Enum):
    """The final result for a packet; undecided if the packet reaches an uninterpreted rule."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    DROPPED = "dropped"
    UNDECIDED = "undecided"


NewSource = int | Literal["kept", "masqueraded", "frontend"]
"""The source address that the endpoint sees: the client's, the node's, the frontend's, or the given address."""


class Outcome(NamedTuple):
    """The observable result for a packet: disposition, endpoint, and the source address that the endpoint sees.

    ``address`` and ``port`` are None if they are not translated. ``seconds`` is the session affinity timeout, None
    without affinity. ``reply`` is the reply of a rejection (``replies``). ``lost_mark`` has the bits of the packet's
    mark, as other programs set it, that rules of kube-proxy or knft overwrite. ``scheduler`` is the scheduler of IPVS
    if it does not choose all endpoints equally often.
    """

    disposition: Disposition
    address: int | None = None
    port: int | None = None
    source: NewSource = "kept"
    seconds: int | None = None
    reply: str = ""
    lost_mark: int = 0
    scheduler: str = ""

    @property
    def is_translated(self) -> bool:
        """Whether the destination address or port is translated."""
        return self.address is not None or self.port is not None


class RuleHit(NamedTuple):
    """A rule whose tests a packet passed; ``previous`` links to the hit before it.

    ``actions`` are the actions that the rule carried out, recorded by ``walk.recording`` alone. Map lookups are
    replaced by the values that they found.
    """

    chain: str
    rule: Rule
    previous: "RuleHit | None"
    actions: tuple[Step, ...] = ()


POLICY_DROP = Rule((), "policy drop")
"""Represents the policy of a base chain that drops packets, in a trail."""


def extend_trail(trail: RuleHit | None, hits: Iterable[RuleHit]) -> RuleHit | None:
    """Return a trail with more hits appended, in order."""
    for hit in hits:
        trail = hit._replace(previous=trail)
    return trail


def rule_hits(trail: RuleHit | None) -> list[RuleHit]:
    """Return the hits of a trail in the order in which the packet met the rules."""
    hits = []
    while trail is not None:
        hits.append(trail)
        trail = trail.previous
    return hits[::-1]


class Path(NamedTuple):
    """A path through the rules, taken by a ``share`` of the packets in ``fields``.

    ``read_entries`` are the affinity entries that rules looked up, ``written_entries`` those that they added.
    """

    fields: PacketFields
    share: Fraction
    outcome: Outcome
    trail: RuleHit | None
    read_entries: frozenset[AffinityEntry]
    written_entries: frozenset[AffinityEntry]
