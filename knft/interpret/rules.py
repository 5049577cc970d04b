"""Rule sets as values: what nftables, iptables with ipsets, and IPVS say, in one vocabulary.

A ``RuleSet`` is of one IP family. Its hooks hold base chains, those hold rules, and a rule is a sequence of *steps*:
tests, which end the rule where they fail, and actions. Addresses are numbers. Names are unique within a rule set:
readers put the table in front (``ip knft services``, ``filter FORWARD``).

What a reader cannot interpret becomes ``Unknown``, a step like any other: whatever packet gets there is undecided.
Expressions without effect on a packet's fate (counters, logs, comments) become no step at all.
"""

import enum
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from knft.interpret.ranges import Ranges

IpVersion = Literal[4, 6]


class Field(enum.Enum):
    """What of a packet, or of its connection, a rule can look at."""

    SOURCE = "source address"
    DESTINATION = "destination address"
    PROTOCOL = "protocol"
    SOURCE_PORT = "source port"
    DESTINATION_PORT = "destination port"
    ORIGINAL_SOURCE = "source of the connection before translation"
    ORIGINAL_DESTINATION = "destination of the connection before translation"
    ORIGINAL_PORT = "destination port of the connection before translation"
    INPUT = "interface it came in by"
    OUTPUT = "interface it goes out by"

    # Enum's own is written in Python; these are keys in every walk.
    __hash__ = object.__hash__


class Random(Struct, frozen=True):
    """A number that the kernel draws, ``offset`` to ``offset + modulus - 1``, all alike; or counted in turn."""

    modulus: int
    offset: int = 0


Part = Field | Random | int
"""One part of a key: what a packet says, a number that is drawn (a modulus of 1 is a constant), or a constant."""


class Within(Struct, frozen=True):
    """Test: a field is in the ranges."""

    field: Field
    ranges: Ranges
    inverted: bool = False


class Marked(Struct, frozen=True):
    """Test: the packet's mark, masked, is in the ranges."""

    mask: int
    ranges: Ranges
    inverted: bool = False


class Interface(Struct, frozen=True):
    """Test: an interface has one of these names, where ``*`` at the end stands for anything.

    A packet of a local process comes in by no interface: nftables and iptables compare the empty name.
    """

    field: Literal[Field.INPUT, Field.OUTPUT]
    names: tuple[str, ...]
    inverted: bool = False


State = Literal["new", "established", "related", "invalid", "untracked"]


class HasState(Struct, frozen=True):
    """Test: conntrack's state of the packet."""

    states: frozenset[State]
    inverted: bool = False


class Translated(Struct, frozen=True):
    """Test: the connection's destination (``dnat``) or source (``snat``) is translated."""

    what: Literal["dnat", "snat"]
    inverted: bool = False


class AddressType(Struct, frozen=True):
    """Test: what the routing tables say of an address: ``local``, ``unicast``, ``broadcast``, ``multicast``, ..."""

    field: Literal[Field.SOURCE, Field.DESTINATION]
    types: frozenset[str]
    inverted: bool = False


class InSet(Struct, frozen=True):
    """Test: a key is in a collection; in one that remembers, for at most ``seconds``, where the test says so."""

    collection: str
    key: tuple[Part, ...]
    inverted: bool = False
    seconds: int | None = None


class Chance(Struct, frozen=True):
    """Test: passed by this share of all packets."""

    probability: Fraction


class ThroughServer(Struct, frozen=True):
    """Test: IPVS sends the packet, on behalf of this virtual server."""

    address: int
    protocol: int
    port: int
    inverted: bool = False


class Never(Struct, frozen=True):
    """Test: nothing passes; for what no packet here is, such as a fragment or a packet of another family."""


class Unknown(Struct, frozen=True):
    """A test or an action that is not interpreted; ``text`` is what the capture says."""

    text: str


class Verdict(Struct, frozen=True):
    """Action: what becomes of the packet, or where it goes on; ``chain`` is for jump and goto."""

    kind: Literal["accept", "drop", "reject", "return", "continue", "jump", "goto"]
    chain: str = ""


class Choose(Struct, frozen=True):
    """Action: the verdict that a map has for a key; the rule ends where it has none."""

    collection: str
    key: tuple[Part, ...]


class SetMark(Struct, frozen=True):
    """Action: the packet's mark becomes ``(mark & keep) ^ flip``."""

    keep: int
    flip: int


class Translate(Struct, frozen=True):
    """Action: a new destination (``dnat``), or a new source (``snat``); ends the base chain.

    Each address and port of the ranges is as likely as another; without ``addresses`` the address stays, without
    ``ports`` the port. ``to_self`` is the address of the interface: what masquerade and redirect take.
    """

    what: Literal["dnat", "snat"]
    addresses: Ranges = ()
    ports: Ranges = ()
    to_self: bool = False


class TranslateBy(Struct, frozen=True):
    """Action: a new destination that a map has for a key: an address, or an address and a port.

    The rule ends where the map has none.
    """

    collection: str
    key: tuple[Part, ...]


class Remember(Struct, frozen=True):
    """Action: put a key into a collection that remembers; ``seconds`` is given where the action says for how long."""

    collection: str
    key: tuple[Part, ...]
    seconds: int | None = None


Test = (
    Within | Marked | Interface | HasState | Translated | AddressType | InSet | Chance | ThroughServer | Never | Unknown
)
Action = Verdict | Choose | SetMark | Translate | TranslateBy | Remember
Step = Test | Action


class Rule(Struct, frozen=True):
    """A rule; ``text`` is the capture's own words, ``line`` where they stand (from 1; 0 where there are no lines)."""

    steps: tuple[Step, ...]
    text: str = ""
    line: int = 0
    comment: str = ""


class Chain(Struct, frozen=True):
    """A chain's rules, in order."""

    name: str
    rules: tuple[Rule, ...]


Hook = Literal["prerouting", "input", "forward", "output", "postrouting"]


class BaseChain(Struct, frozen=True):
    """Where the kernel enters a chain; what reaches its end meets the ``policy``.

    nat chains see the first packet of a connection alone, all of them at -100 (destination) or 100 (source), in the
    order of their own priorities, until one translates.
    """

    chain: str
    hook: Hook
    kind: Literal["filter", "nat", "route"]
    priority: int
    policy: Literal["accept", "drop"] = "accept"


class Element(Struct, frozen=True):
    """What a collection holds: a key, each part a number or an inclusive range, and a map's value.

    ``value`` is a verdict, or the numbers of an address, or of an address and a port.
    """

    key: tuple[int | tuple[int, int], ...]
    value: Verdict | tuple[int, ...] | None = None
    comment: str = ""


class Collection(Struct, frozen=True):
    """A set or a map; one that remembers is written by rules (a dynamic set, a list of ``recent``), with a timeout."""

    name: str
    elements: tuple[Element, ...] = ()
    remembers: bool = False
    seconds: int | None = None


class Server(Struct, frozen=True):
    """A virtual server of IPVS, and its real servers: address, port, weight. ``seconds`` is its persistence."""

    address: int
    protocol: int
    port: int
    scheduler: str
    targets: tuple[tuple[int, int, int], ...]
    seconds: int | None = None


class RuleSet(Struct, frozen=True, kw_only=True):
    """All rules of one IP family.

    ``bound`` are addresses that are local because of IPVS' device, and that processes of the node have as their source
    where they dial them (``binds_sources``; not if somebody asks what would be without that).
    """

    version: IpVersion
    bases: tuple[BaseChain, ...] = ()
    chains: dict[str, Chain] = {}
    collections: dict[str, Collection] = {}
    servers: tuple[Server, ...] = ()
    bound: Ranges = ()
    binds_sources: bool = True
