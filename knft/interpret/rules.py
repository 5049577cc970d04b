"""One data model for nftables rules, iptables rules with ipsets, and IPVS virtual servers.

A ``RuleSet`` belongs to one IP family. Hooks call base chains, chains hold rules, and a rule is a sequence of *steps*:
tests (a failing test ends the rule) and actions. Addresses are integers. Names of chains and collections are unique in
a rule set because the readers prefix them with the table (``ip knft services``, ``filter FORWARD``).

A reader turns an expression that it cannot interpret into the step ``Unknown``: packets that reach it are undecided.
Expressions that do not affect the disposition of packets (counters, logs, comments) produce no step.
"""

import enum
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from knft.families import IpVersion
from knft.interpret.ranges import Ranges


class Field(enum.Enum):
    """A field of a packet, or of its conntrack entry, that rules can match."""

    SOURCE = "source address"
    DESTINATION = "destination address"
    PROTOCOL = "protocol"
    SOURCE_PORT = "source port"
    DESTINATION_PORT = "destination port"
    ORIGINAL_SOURCE = "source of the connection before translation"
    ORIGINAL_DESTINATION = "destination of the connection before translation"
    ORIGINAL_PORT = "destination port of the connection before translation"
    INPUT = "input interface"
    OUTPUT = "output interface"
    PRIORITY = "priority"
    """The packet's priority (nft: ``meta priority``), as far as rules have set it."""

    # Enum.__hash__ is written in Python and slow; fields are dictionary keys on the hot path.
    __hash__ = object.__hash__


class RandomNumber(Struct, frozen=True):
    """A number from ``offset`` to ``offset + modulus - 1``, uniformly random or incremented (nft: ``numgen``)."""

    modulus: int
    offset: int = 0


class HashedFields(Struct, frozen=True):
    """A number from 0 to ``modulus - 1``, the hash of fields (nft: ``jhash``); each has a size in bytes."""

    fields: tuple[tuple[Field, int], ...]
    modulus: int
    seed: int


KeyPart = Field | RandomNumber | HashedFields | int
"""One part of a lookup key: a packet field, a generated number, a hash, or a constant."""


class Within(Struct, frozen=True):
    """Test: the field's value is in the ranges."""

    field: Field
    ranges: Ranges
    inverted: bool = False


class Marked(Struct, frozen=True):
    """Test: the packet's mark, masked, is in the ranges."""

    mask: int
    ranges: Ranges
    inverted: bool = False


class Interface(Struct, frozen=True):
    """Test: an interface has one of these names; a trailing ``*`` is a wildcard.

    A packet of a local process has no input interface: nftables and iptables then compare the empty name.
    """

    field: Literal[Field.INPUT, Field.OUTPUT]
    names: tuple[str, ...]
    inverted: bool = False


State = Literal["new", "established", "related", "invalid", "untracked"]


class HasState(Struct, frozen=True):
    """Test: the packet's conntrack state."""

    states: frozenset[State]
    inverted: bool = False


class Translated(Struct, frozen=True):
    """Test: the connection's destination (``dnat``) or source (``snat``) is translated."""

    kind: Literal["dnat", "snat"]
    inverted: bool = False


class AddressType(Struct, frozen=True):
    """Test: the type of an address in the routing tables: ``local``, ``unicast``, ``broadcast``, ``multicast``, ..."""

    field: Literal[Field.SOURCE, Field.DESTINATION]
    types: frozenset[str]
    inverted: bool = False


class InSet(Struct, frozen=True):
    """Test: a key is in a collection. In a dynamic one, ``seconds`` limits the age of the entry, if given."""

    collection: str
    key: tuple[KeyPart, ...]
    inverted: bool = False
    seconds: int | None = None


class LookUpPriority(Struct, frozen=True):
    """Test: a map has a value for the key; the packet's priority becomes this value."""

    collection: str
    key: tuple[KeyPart, ...]


class SetPriority(Struct, frozen=True):
    """Test that all packets pass: their priority becomes ``value``, which is None if it is not interpreted."""

    value: int | None


class Probability(Struct, frozen=True):
    """Test: this share of the packets passes (iptables: ``statistic``, nft: a comparison with ``numgen``)."""

    share: Fraction


class ViaVirtualServer(Struct, frozen=True):
    """Test: IPVS sends the packet to a real server of this virtual server (iptables: ``-m ipvs --vaddr``)."""

    address: int
    protocol: int
    port: int
    inverted: bool = False


class Never(Struct, frozen=True):
    """Test that always fails: for packets that are not modelled, such as fragments and packets of the other family."""


class Unknown(Struct, frozen=True):
    """A test or an action that is not interpreted; ``text`` is its text in the capture."""

    text: str


class Verdict(Struct, frozen=True):
    """Action: a verdict; ``chain`` is the target of jump and goto, ``reply`` that of reject (``replies``)."""

    kind: Literal["accept", "drop", "reject", "return", "continue", "jump", "goto"]
    chain: str = ""
    reply: str = ""


class VmapLookup(Struct, frozen=True):
    """Action: apply the verdict that a verdict map has for the key; without one the rule ends."""

    collection: str
    key: tuple[KeyPart, ...]


class SetMark(Struct, frozen=True):
    """Action: the packet's mark becomes ``(mark & keep) ^ flip``."""

    keep: int
    flip: int


class Translate(Struct, frozen=True):
    """Action: translate the destination (``dnat``) or the source (``snat``); ends the base chain.

    The kernel chooses among the addresses and ports with equal probability. Without ``addresses`` the address stays,
    without ``ports`` the port. ``to_interface_address`` is set for masquerade and redirect.
    """

    kind: Literal["dnat", "snat"]
    addresses: Ranges = ()
    ports: Ranges = ()
    to_interface_address: bool = False


class DnatMapLookup(Struct, frozen=True):
    """Action: translate the destination to the address, or address and port, that a map has for the key.

    Without an entry in the map the rule ends.
    """

    collection: str
    key: tuple[KeyPart, ...]


class AddToSet(Struct, frozen=True):
    """Action: add a key to a dynamic collection; ``seconds`` is the timeout, if the action gives one."""

    collection: str
    key: tuple[KeyPart, ...]
    seconds: int | None = None


Test = (
    Within
    | Marked
    | Interface
    | HasState
    | Translated
    | AddressType
    | InSet
    | LookUpPriority
    | SetPriority
    | Probability
    | ViaVirtualServer
    | Never
    | Unknown
)
Action = Verdict | VmapLookup | SetMark | Translate | DnatMapLookup | AddToSet
Step = Test | Action

DROP_INVALID: tuple[Step, ...] = (HasState(frozenset({"invalid"})), Verdict("drop"))
"""The steps of a rule that drops all packets in conntrack state INVALID."""


class Rule(Struct, frozen=True):
    """A rule; ``text`` is its text in the capture, ``line`` the line number (from 1; 0 in captures without lines)."""

    steps: tuple[Step, ...]
    text: str = ""
    line: int = 0
    comment: str = ""


class Chain(Struct, frozen=True):
    """A chain and its rules, in order."""

    name: str
    rules: tuple[Rule, ...]


Hook = Literal["prerouting", "input", "forward", "output", "postrouting"]


class BaseChain(Struct, frozen=True):
    """A hook that calls a chain; the ``policy`` applies to packets that reach the end of the chain.

    Only the first packet of a connection passes nat chains. The kernel calls all nat chains of a hook at priority -100
    (destination) or 100 (source), ordered by their own priorities, until one translates.
    """

    chain: str
    hook: Hook
    kind: Literal["filter", "nat", "route"]
    priority: int
    policy: Literal["accept", "drop"] = "accept"


class Element(Struct, frozen=True):
    """An element of a collection: a key whose parts are numbers or inclusive ranges, and the value in a map.

    ``value`` is a verdict, (address,), (address, port) or (priority,).
    """

    key: tuple[int | tuple[int, int], ...]
    value: Verdict | tuple[int, ...] | None = None
    comment: str = ""


class Collection(Struct, frozen=True):
    """A set or a map. Rules add entries to a dynamic collection (an nft dynamic set, an iptables ``recent`` list).

    ``seconds`` is the timeout of its entries.
    """

    name: str
    elements: tuple[Element, ...] = ()
    is_dynamic: bool = False
    seconds: int | None = None


class VirtualServer(Struct, frozen=True):
    """An IPVS virtual server and its real servers (address, port, weight); ``seconds`` is its persistence timeout.

    ``line`` is its line number in the capture, 0 without one.
    """

    address: int
    protocol: int
    port: int
    scheduler: str
    real_servers: tuple[tuple[int, int, int], ...]
    seconds: int | None = None
    line: int = 0


class RuleSet(Struct, frozen=True, kw_only=True):
    """All rules of one IP family.

    ``ipvs_addresses`` are the addresses of the device kube-ipvs0. They are local, so the kernel selects such an address
    as the source of packets that a process of the node sends to it. ``sends_from_ipvs_addresses`` is false to compute
    the outcomes without this source address selection.
    """

    version: IpVersion
    base_chains: tuple[BaseChain, ...] = ()
    chains: dict[str, Chain] = {}
    collections: dict[str, Collection] = {}
    servers: tuple[VirtualServer, ...] = ()
    ipvs_addresses: Ranges = ()
    sends_from_ipvs_addresses: bool = True
