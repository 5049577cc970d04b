"""The results of a comparison, and the results that it shares among destinations."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from knft.interpret.compare.blocking_rules import BlockingRule
from knft.interpret.compare.packet_classes import DestinationClass
from knft.interpret.compare.partition import Piece, first_difference
from knft.interpret.outcomes import AffinityEntry, Disposition, Origin, PacketClass, Path
from knft.interpret.ranges import Ranges, intersection, ranges, sole_value, subtract
from knft.interpret.walk.dependencies import DestinationQuery


class Client(Struct, frozen=True):
    """A client that was sent to ``endpoint`` before, and its affinity entries on the left and on the right side."""

    endpoint: tuple[int | None, int | None]
    left: frozenset[AffinityEntry]
    right: frozenset[AffinityEntry]


NEW_CLIENT = Client((None, None), frozenset(), frozenset())
"""A client without affinity entries."""


class Difference(Struct, frozen=True):
    """Packets with different outcomes on the two sides.

    ``reasons`` names the expected differences that explain it; of several, each is necessary. Without reasons the
    difference is unexpected. ``paths`` are the paths of the whole class on both sides. ``located_piece`` holds the
    packets that differ, or None if ``differing_piece`` has to find them. ``earlier`` are packets that made the client's
    affinity entries, empty for a new client. ``actual_piece`` has the paths of an unexpected difference without the
    edits that remove expected ones, None if they are those of ``differing_piece``.
    """

    destination: DestinationClass
    packets: PacketClass
    client: Client
    reasons: tuple[str, ...]
    paths: tuple[Sequence[Path], Sequence[Path]]
    located_piece: Piece | None = None
    earlier: tuple[PacketClass, ...] = ()
    actual_piece: Piece | None = None

    @property
    def differing_piece(self) -> Piece:
        """A piece of the packets that differ, with the same outcomes throughout."""
        found = first_difference(*self.paths) if self.located_piece is None else self.located_piece
        ports = intersection(found.fields.ports, self.packets.fields.ports) or self.packets.fields.ports
        return found._replace(fields=found.fields._replace(ports=ports))

    @property
    def is_undecided(self) -> bool:
        """Whether an uninterpreted rule decides on one of the sides."""
        return self.located_piece is not None and self.located_piece.is_undecided


def is_loss(difference: Difference) -> bool:
    """Return whether the left side serves packets of a difference that the right side does not always serve."""
    left, right = difference.paths
    if not any(map(_is_served, left)) or all(map(_is_served, right)):
        return False  # without finding the packets that differ
    piece = difference.differing_piece
    return any(map(_is_served, piece.left)) and not all(map(_is_served, piece.right))


def _is_served(path: Path) -> bool:
    return path.outcome.disposition is Disposition.DELIVERED and path.outcome.is_translated


class ComparedClass(NamedTuple):
    """A packet class, its destination class, the client that sends the packets, and its earlier packets."""

    destination: DestinationClass
    packets: PacketClass
    client: Client
    earlier: tuple[PacketClass, ...] = ()

    def difference_in(self, piece: Piece, reasons: tuple[str, ...] = ()) -> Difference:
        """Return a difference for a piece of the class."""
        return self.difference((piece.left, piece.right), reasons, piece)

    def difference(self, paths: "PathPair", reasons: tuple[str, ...], piece: Piece | None) -> Difference:
        """Return a difference of the class, whose paths are ``paths``."""
        return Difference(self.destination, self.packets, self.client, reasons, paths, piece, self.earlier)


DifferenceKind = tuple[Origin, bool, bool, bool, frozenset[Disposition], frozenset[Disposition]]
"""The properties by which a comparison guesses reasons: differences with equal properties often have the same ones."""

PathPair = tuple[Sequence[Path], Sequence[Path]]
"""All paths of some packets, on the left and on the right side."""


def difference_kind(compared: ComparedClass, paths: PathPair) -> DifferenceKind:
    """Return the kind of the differences between two sides."""
    left, right = (frozenset(path.outcome.disposition for path in side) for side in paths)
    packets = compared.packets
    return (
        packets.origin,
        packets.is_local,
        compared.client is NEW_CLIENT,
        sole_value(packets.fields.ports) is None,
        left,
        right,
    )


class Counts(Struct):
    """Numbers of packet classes; two packets are in one class if no rule on either side tells them apart."""

    equal: int = 0
    expected: int = field(default=0, name="by_intent")
    different: int = 0
    undecided: int = 0

    def add(self, other: "Counts") -> None:
        """Add other counts to these."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, before: "Counts") -> "Counts":
        """Return the counts minus earlier ones."""
        return Counts(*(getattr(self, name) - getattr(before, name) for name in self.__struct_fields__))


class SharedResult(NamedTuple):
    """The result for some ports of a destination, and the dependencies under which it holds for other destinations."""

    ports: Ranges
    dependencies: tuple[tuple[DestinationQuery, bool], ...]
    differences: tuple[Difference, ...]
    counts: Counts
    blocked: frozenset[BlockingRule] = frozenset()

    def applies_to(self, destination: DestinationClass, packets: PacketClass, mentioned: Ranges) -> bool:
        """Return whether the result holds for other packets.

        ``mentioned`` are the ports that rules match independently of the destination.
        """
        ports, address = packets.fields.ports, destination.address
        others = ranges((*subtract(ports, self.ports), *subtract(self.ports, ports)))
        if others and (
            intersection(others, mentioned) or not all(self._is_of_all_ports(item) for item in self.differences)
        ):
            return False
        return all(query.answer(address, ports) is answer for query, answer in self.dependencies)

    def _is_of_all_ports(self, difference: Difference) -> bool:
        return difference.located_piece is None or difference.located_piece.fields.ports == self.ports

    def difference_for(self, difference: Difference, destination: DestinationClass, packets: PacketClass) -> Difference:
        """Return one of the result's differences for another destination and its packets."""
        located = difference.located_piece
        if located is not None and located.fields.ports == self.ports:
            located = located._replace(fields=located.fields._replace(ports=packets.fields.ports))
        return replace(difference, destination=destination, packets=packets, located_piece=located)


def entries_read_by_ports(paths: Sequence[Path]) -> dict[Ranges, frozenset[AffinityEntry]]:
    """Return the affinity entries that the paths look up, by destination port."""
    found: dict[Ranges, frozenset[AffinityEntry]] = {}
    for path in paths:
        if path.read_entries:
            ports = path.fields.ports
            found[ports] = found.get(ports, frozenset()) | path.read_entries
    return found


AffinityKey = tuple[Ranges, int | None, int | None, int | None]
"""The destination ports, the address and port of the endpoint that clients reach, and the affinity timeout."""


def entries_written_by_endpoint(paths: Sequence[Path]) -> dict[AffinityKey, frozenset[AffinityEntry]]:
    """Return the affinity entries of clients after they reach an endpoint, by endpoint."""
    found: dict[AffinityKey, frozenset[AffinityEntry]] = {}
    for path in paths:
        outcome = path.outcome
        if outcome.is_translated:
            endpoint = (path.fields.ports, outcome.address, outcome.port, outcome.seconds)
            found[endpoint] = found.get(endpoint, frozenset()) | path.written_entries
    return found
