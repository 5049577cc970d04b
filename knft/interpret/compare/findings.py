"""What a comparison finds, and what it keeps of it for the packets that come after."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from knft.interpret.compare.boxes import Piece, a_difference
from knft.interpret.compare.classes import Destination
from knft.interpret.outcomes import Fate, Memory, Origin, Packets, Path
from knft.interpret.ranges import Ranges, common, only, ranges, without
from knft.interpret.walk.journal import Question


class Client(Struct, frozen=True):
    """What is known of a client before: which endpoint it was sent to, and how either side remembers that."""

    endpoint: tuple[int | None, int | None]
    left: frozenset[Memory]
    right: frozenset[Memory]


FRESH = Client((None, None), frozenset(), frozenset())
"""A client that nobody remembers."""


class Difference(Struct, frozen=True):
    """Packets that fare otherwise on the other side; ``reasons`` are the intended differences that it comes of.

    Of several, each is needed. Without any it is not meant. ``ways`` are all ways of such packets on either side;
    ``located`` are those packets that differ, None where nobody has looked for them yet.
    """

    destination: Destination
    packets: Packets
    client: Client
    reasons: tuple[str, ...]
    ways: tuple[Sequence[Path], Sequence[Path]]
    located: Piece | None = None

    @property
    def piece(self) -> Piece:
        """Some of the packets that differ, alike among each other on either side."""
        found = a_difference(*self.ways) if self.located is None else self.located
        ports = common(found.box.ports, self.packets.box.ports) or self.packets.box.ports
        return found._replace(box=found.box._replace(ports=ports))

    @property
    def is_undecided(self) -> bool:
        """Whether nobody knows what becomes of them on one of the sides."""
        return self.located is not None and self.located.is_undecided


class Case(NamedTuple):
    """Packets of one class, of clients of whom one thing is known."""

    destination: Destination
    packets: Packets
    client: Client

    def difference(self, piece: Piece, reasons: tuple[str, ...] = ()) -> Difference:
        """Return a difference between some of the packets."""
        return Difference(self.destination, self.packets, self.client, reasons, (piece.left, piece.right), piece)


Kind = tuple[Origin, bool, bool, bool, frozenset[Fate], frozenset[Fate]]
"""What differences of one kind are alike in: it is likely that they come of the same."""

Ways = tuple[Sequence[Path], Sequence[Path]]
"""All ways of some packets, on the left and on the right."""


def kind_of(case: Case, ways: Ways) -> Kind:
    """Return what kind of differences there may be."""
    left, right = (frozenset(path.outcome.fate for path in side) for side in ways)
    packets = case.packets
    return packets.origin, packets.is_local, case.client is FRESH, only(packets.box.ports) is None, left, right


class Counts(Struct):
    """Classes of packets: parts that either side tells apart."""

    equal: int = 0
    by_intent: int = 0
    different: int = 0
    undecided: int = 0

    def add(self, other: "Counts") -> None:
        """Count what another counts as well."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, before: "Counts") -> "Counts":
        """Return what has been counted since."""
        return Counts(*(getattr(self, name) - getattr(before, name) for name in self.__struct_fields__))


class Known(NamedTuple):
    """What was found for some ports of a destination, and what has to be so of another for the same to hold."""

    ports: Ranges
    questions: tuple[tuple[Question, bool], ...]
    differences: tuple[Difference, ...]
    counts: Counts

    def holds(self, destination: Destination, packets: Packets, mentioned: Ranges) -> bool:
        """Tell whether it holds for other packets; ``mentioned`` are ports that rules speak of, whoever is dialled."""
        ports, address = packets.box.ports, destination.address
        others = ranges((*without(ports, self.ports), *without(self.ports, ports)))
        if others and (common(others, mentioned) or not all(self._is_of_all_ports(item) for item in self.differences)):
            return False
        return all(question.answer(address, ports) is answer for question, answer in self.questions)

    def _is_of_all_ports(self, difference: Difference) -> bool:
        return difference.located is None or difference.located.box.ports == self.ports

    def again(self, difference: Difference, destination: Destination, packets: Packets) -> Difference:
        """Return one of its differences for others."""
        located = difference.located
        if located is not None and located.box.ports == self.ports:
            located = located._replace(box=located.box._replace(ports=packets.box.ports))
        return replace(difference, destination=destination, packets=packets, located=located)


def asked(paths: Sequence[Path]) -> dict[Ranges, frozenset[Memory]]:
    """Return what is asked about clients, by the ports that they dial."""
    found: dict[Ranges, frozenset[Memory]] = {}
    for path in paths:
        if path.looked_up:
            ports = path.box.ports
            found[ports] = found.get(ports, frozenset()) | path.looked_up
    return found


Endpoint = tuple[Ranges, int | None, int | None, int | None]
"""The ports that clients dial, the address and port of the endpoint, and for how long they will be sent there."""


def remembered(paths: Sequence[Path]) -> dict[Endpoint, frozenset[Memory]]:
    """Return what will be known of clients that reach an endpoint."""
    found: dict[Endpoint, frozenset[Memory]] = {}
    for path in paths:
        outcome = path.outcome
        if outcome.is_translated:
            endpoint = (path.box.ports, outcome.address, outcome.port, outcome.seconds)
            found[endpoint] = found.get(endpoint, frozenset()) | path.remembered
    return found
