"""The state of a packet class during a walk: its position in the rules, and what rules have changed."""

import enum
from copy import copy
from fractions import Fraction
from typing import NamedTuple

from msgspec import Struct

from knft.interpret.outcomes import AffinityEntry, NewSource, Origin, PacketFields, RuleHit
from knft.interpret.ranges import Ranges, single
from knft.interpret.rules import Field, VirtualServer
from knft.interpret.walk.index import IndexedChain
from knft.interpret.walk.stages import HookStage
from knft.protocols import SCTP, TCP, UDP


class Next(enum.Enum):
    """What the walk does after a step of a rule."""

    STEP = "continue with the next step of the rule"
    RULE = "continue with the next rule of the frame"
    END_OF_BASE_CHAIN = "leave the base chain"
    POLICY = "apply the policy of the base chain"
    STOP = "stop: the packets have an outcome, or were split into pending parts"
    DROP = "drop the packets"
    REJECT = "reject the packets"
    UNKNOWN = "stop: the rule is not interpreted"

    # Enum.__hash__ is written in Python and takes as long as evaluating a rule.
    __hash__ = object.__hash__


class Frame(NamedTuple):
    """A position in a chain, and in the chain that jumped to it (the kernel's jump stack)."""

    chain: IndexedChain
    rules: list[int]
    """The numbers of the chain's rules that the packet can match."""
    next: int
    """The index in ``rules`` of the next rule."""
    outer: "Frame | None"


class PacketState(Struct, kw_only=True):
    """Packets that have hit the same rules so far; modified during the walk, copied when the class is split."""

    fields: PacketFields
    origin: Origin
    protocol: int
    destination: int
    original_destination: int
    """The destination address before translation."""
    is_local: bool
    """Whether the destination is an address of the node."""
    stage: HookStage
    port: int | None = None
    """The destination port after translation, None if it is not translated."""
    source: int | None = None
    """The source address that the kernel selects, None if ``fields.sources`` applies."""
    inputs: frozenset[str] | None = None
    outputs: frozenset[str] | None = None
    """The interfaces at the current hook, None if those of ``fields`` apply."""
    mark: int = 0
    own_mark: int = 0
    """The bits of the mark that rules of kube-proxy or knft have set."""
    lost_mark: int = 0
    """The other bits of the mark that these rules have overwritten."""
    priority: int | None = None
    """The packets' priority, None if it is unknown."""
    share: Fraction = Fraction(1)
    is_redirected: bool = False
    """Whether a nat rule (then ``is_translated`` may be set) or IPVS has changed the destination."""
    is_translated: bool = False
    new_source: NewSource | None = None
    server: VirtualServer | None = None
    scheduler: str = ""
    """The scheduler that has chosen among several real servers, unless it chooses all equally often."""
    read_entries: frozenset[AffinityEntry] = frozenset()
    written_entries: frozenset[AffinityEntry] = frozenset()
    seconds: int | None = None
    """The timeout of ``written_entries``."""
    max_ages: dict[str, int] = {}
    """The age limits in the lookups so far, by collection; the dictionary is replaced, never modified."""
    trail: RuleHit | None = None
    entry: int = -1
    """The index of the current entry of ``stage``."""
    in_nat: bool = False
    is_tracked: bool = True
    """Whether the packets have passed conntrack."""
    frame: Frame | None = None
    resume_step: int = 0
    """The step at which to resume the rule before the frame's next; 0 if no rule is interrupted."""
    resume_with: Next = Next.RULE
    """How the walk continues when it takes these packets from the pending ones."""

    @property
    def ports(self) -> Ranges:
        """The destination ports of the packets."""
        return self.fields.ports if self.port is None else single(self.port)

    def restricted_to(self, fields: PacketFields) -> "PacketState":
        """Return a copy for a part of the packets."""
        other = copy(self)
        other.fields = fields
        return other

    def redirect(self, address: int, port: int | None, *, is_local: bool) -> None:
        """Change the destination address, and the port unless it is None."""
        self.destination, self.is_local, self.is_redirected = address, is_local, True
        if port is not None:
            self.port = port

    def interfaces(self, field: Field) -> frozenset[str]:
        """Return the possible names of the input or output interface."""
        if field is Field.INPUT:
            return self.fields.inputs if self.inputs is None else self.inputs
        return self.fields.outputs if self.outputs is None else self.outputs

    def numbers(self, field: Field) -> int | Ranges | None:
        """Return the value of a field, all its possible values, or None if the packets do not have the field."""
        if field in _ORIGINAL and not self.is_tracked:
            return None
        match field:
            case Field.DESTINATION:
                return self.destination
            case Field.PROTOCOL:
                return self.protocol
            case Field.SOURCE | Field.ORIGINAL_SOURCE:
                return self._source(field)
            case Field.ORIGINAL_DESTINATION:
                return self.original_destination
        return self.priority if field is Field.PRIORITY else self._port(field)

    def _source(self, field: Field) -> int | Ranges:
        if field is Field.SOURCE and isinstance(self.new_source, int):
            return self.new_source
        return self.fields.sources if self.source is None else self.source

    def _port(self, field: Field) -> int | Ranges | None:
        if self.protocol not in _WITH_PORTS:
            return None
        if field is Field.DESTINATION_PORT and self.port is not None:
            return self.port
        if field in (Field.DESTINATION_PORT, Field.ORIGINAL_PORT):
            return self.fields.ports
        return self.fields.source_ports if field is Field.SOURCE_PORT else None

    def with_field(self, field: Field, ranges: Ranges) -> PacketFields:
        """Return the packets' fields with other values of one field."""
        if field in (Field.SOURCE, Field.ORIGINAL_SOURCE):
            return self.fields._replace(sources=ranges)
        if field is Field.SOURCE_PORT:
            return self.fields._replace(source_ports=ranges)
        return self.fields._replace(ports=ranges)


_ORIGINAL = frozenset({Field.ORIGINAL_SOURCE, Field.ORIGINAL_DESTINATION, Field.ORIGINAL_PORT})
_WITH_PORTS = frozenset({TCP, UDP, SCTP, 33, 136})
"""These, DCCP and UDP-Lite: the protocols whose ports nftables and iptables can match."""
