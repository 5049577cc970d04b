"""A class of packets on its way: where it is, and what rules have done to it."""

import enum
from copy import copy
from fractions import Fraction
from typing import NamedTuple

from msgspec import Struct

from knft.interpret.outcomes import Box, Memory, NewSource, Origin, Passed
from knft.interpret.ranges import Ranges, single
from knft.interpret.rules import Field, Server
from knft.interpret.walk.index import IndexedChain
from knft.interpret.walk.stages import Stage


class Next(enum.Enum):
    """What follows a step of a rule."""

    STEP = "the rule's next step"
    RULE = "whatever rule the packet's frame says"
    STOP = "the end of the base chain"
    POLICY = "the end of the base chain, and its policy"
    GONE = "nothing: others wait in the packet's place"
    DROP = "the packet's end"
    REJECT = "the packet's end, and its sender is told"
    UNKNOWN = "nobody knows"

    # Enum's own is written in Python, and takes as long as a rule.
    __hash__ = object.__hash__


class Frame(NamedTuple):
    """Where a packet goes on in a chain, and in the one that led there."""

    chain: IndexedChain
    rules: list[int]
    """The numbers of those that can concern the packet."""
    next: int
    """Which of them is next."""
    outer: "Frame | None"


class Packet(Struct, kw_only=True):
    """A class of packets that have met the same rules so far; changed as they go, copied where the class is split."""

    box: Box
    origin: Origin
    protocol: int
    destination: int
    original: int
    """The address that was dialled."""
    is_local: bool
    """Whether the node has the destination itself."""
    stage: Stage
    port: int | None = None
    """The destination port, where it is another than was dialled."""
    source: int | None = None
    """The source, where it is not the sender's choice."""
    inputs: frozenset[str] | None = None
    outputs: frozenset[str] | None = None
    """The interfaces, where they are no longer the sender's or the routing table's choice."""
    mark: int = 0
    share: Fraction = Fraction(1)
    is_redirected: bool = False
    """Whether they go to somebody else than who was dialled, by nat's doing (``translated``) or by IPVS'."""
    translated: bool = False
    new_source: NewSource | None = None
    server: Server | None = None
    looked_up: frozenset[Memory] = frozenset()
    remembered: frozenset[Memory] = frozenset()
    seconds: int | None = None
    """For how long that is remembered."""
    asked: dict[str, int] = {}
    """How old what was looked up on the way may be, where a rule said so; replaced, never changed."""
    trail: Passed | None = None
    stop: int = -1
    """Which of the ``stage``'s stops they are at."""
    in_nat: bool = False
    is_tracked: bool = True
    """Whether conntrack has seen them by now."""
    frame: Frame | None = None
    resume: int = 0
    """The step of the rule before the frame's next at which they go on, where it is not the first."""
    pending: Next = Next.RULE
    """What follows first, when they go on."""

    @property
    def ports(self) -> Ranges:
        """The ports that they may go to."""
        return self.box.ports if self.port is None else single(self.port)

    def within(self, box: Box) -> "Packet":
        """Return a copy of a part of the class."""
        other = copy(self)
        other.box = box
        return other

    def redirect(self, address: int, port: int | None, *, is_local: bool) -> None:
        """Send them to another address, and to another port unless that is None."""
        self.destination, self.is_local, self.is_redirected = address, is_local, True
        if port is not None:
            self.port = port

    def interfaces(self, field: Field) -> frozenset[str]:
        """Return the names that the interface may have that they came in by, or go out by."""
        if field is Field.INPUT:
            return self.box.inputs if self.inputs is None else self.inputs
        return self.box.outputs if self.outputs is None else self.outputs

    def numbers(self, field: Field) -> int | Ranges | None:
        """Return what a field holds: a number, all that it may be, or None where these packets have no such field."""
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
                return self.original
        return self._port(field) if self.protocol in _WITH_PORTS else None

    def _source(self, field: Field) -> int | Ranges:
        if field is Field.SOURCE and isinstance(self.new_source, int):
            return self.new_source
        return self.box.sources if self.source is None else self.source

    def _port(self, field: Field) -> int | Ranges | None:
        if field is Field.DESTINATION_PORT and self.port is not None:
            return self.port
        if field in (Field.DESTINATION_PORT, Field.ORIGINAL_PORT):
            return self.box.ports
        return self.box.source_ports if field is Field.SOURCE_PORT else None

    def narrowed(self, field: Field, ranges: Ranges) -> Box:
        """Return the class with what a field may hold replaced."""
        if field in (Field.SOURCE, Field.ORIGINAL_SOURCE):
            return self.box._replace(sources=ranges)
        if field is Field.SOURCE_PORT:
            return self.box._replace(source_ports=ranges)
        return self.box._replace(ports=ranges)


_ORIGINAL = frozenset({Field.ORIGINAL_SOURCE, Field.ORIGINAL_DESTINATION, Field.ORIGINAL_PORT})
_WITH_PORTS = frozenset({6, 17, 33, 132, 136})
"""TCP, UDP, DCCP, SCTP and UDP-Lite have ports where nftables and iptables look for them."""
