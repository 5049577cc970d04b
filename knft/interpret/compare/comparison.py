"""Goes through all classes of packets, and says of each what becomes of it in two rule sets."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import combinations
from typing import Protocol

from msgspec.structs import replace

from knft.interpret.compare.findings import (
    NEW_CLIENT,
    Client,
    ComparedClass,
    Counts,
    Difference,
    DifferenceKind,
    PathPair,
    SharedResult,
    difference_kind,
    entries_read_by_ports,
    entries_written_by_endpoint,
)
from knft.interpret.compare.packet_classes import DestinationClass, PacketClasses
from knft.interpret.compare.partition import (
    Piece,
    are_equal,
    clip_paths,
    clip_piece,
    outcome_shares,
    partition,
    split_by_ports,
)
from knft.interpret.outcomes import AffinityEntry, Disposition, PacketClass, PacketFields, Path
from knft.interpret.ranges import PORTS, Ranges, contains, ranges, sole_value
from knft.interpret.rules import RuleSet
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.walker import Walker

Progress = Callable[[int, int], None]
"""Told how many classes of destinations are done, and how many there are."""


class RemovableDifferences(Protocol):
    """The intended differences, by name, and the two rule sets with any of them taken out."""

    reasons: tuple[str, ...]

    def rule_sets_without(self, reasons: frozenset[str]) -> tuple[RuleSet, RuleSet]:
        """Return left and right without some intended differences."""


class Comparison:
    """Two rule sets, left and right, and all that they tell apart; ``counts`` grows while differences are asked for."""

    def __init__(
        self, left: RuleSet, right: RuleSet, classes: PacketClasses, own: Ranges, intentions: RemovableDifferences
    ) -> None:
        """Prepare both; rule sets without intended differences are prepared when one is first needed."""
        self._indexes = Indexes()
        self._own = own
        self._bound = ranges((*left.ipvs_addresses, *right.ipvs_addresses))
        self._known: dict[tuple[bool, bool, int, PacketFields], list[SharedResult]] = {}
        self._left = self._walker(left)
        self._right = self._walker(right)
        self._sides = left, right
        self._classes = classes
        self._ports = classes.mentioned_ports
        self._intentions = intentions
        self._tried = [frozenset({reason}) for reason in intentions.reasons]
        self._latest: dict[DifferenceKind, frozenset[str]] = {}
        self._walkers: dict[frozenset[str], tuple[Walker, Walker]] = {}
        self._sticky: dict[AffinityEntry, dict[Client, None]] = {}
        self._asking: list[tuple[DestinationClass, PacketClass, frozenset[AffinityEntry]]] = []
        self.counts = Counts()

    def _walker(self, rules: RuleSet) -> Walker:
        return Walker(rules, self._own, self._indexes)

    def differences(self, progress: Progress = lambda _, __: None) -> Iterator[Difference]:
        """Yield every difference, of clients that nobody remembers first."""
        destinations = self._classes.destinations()
        # They may become more on the way.
        for number, destination in enumerate(destinations):
            progress(number, len(destinations))
            self._targets()
            for packets in self._classes.packets(destination):
                yield from self._of_new_clients(destination, packets)
            destinations += self._classes.split_off_targets(destination, self._targets())
        progress(len(destinations), len(destinations))
        for destination, packets, looked_up in self._asking:
            clients = {client: None for memory in looked_up for client in self._sticky.get(memory, ())}
            for client in clients:
                yield from self._compared(destination, packets, client)

    def _targets(self) -> set[int]:
        """Return where rules have sent packets instead, since this was asked last."""
        return self._left.take_new_destinations() | self._right.take_new_destinations()

    def _of_new_clients(self, destination: DestinationClass, packets: PacketClass) -> Iterator[Difference]:
        """Yield the differences of clients that nobody remembers, as for another destination where that is alike."""
        if not destination.is_shareable:
            yield from self._compared(destination, packets, NEW_CLIENT)
            return
        is_bound = contains(self._bound, destination.address)
        everywhere = packets.fields._replace(ports=PORTS)
        alike = self._known.setdefault((destination.is_local, is_bound, packets.protocol, everywhere), [])
        known = next((item for item in alike if item.applies_to(destination, packets, self._ports)), None)
        if known is not None:
            self.counts.add(known.counts)
            yield from (known.difference_for(difference, destination, packets) for difference in known.differences)
            return
        journal, before, asking = self._indexes.recorder, copy(self.counts), len(self._asking)
        journal.start()
        left, right = self._ways(packets, NEW_CLIENT)
        self._note_memory(destination, packets, left, right)
        if journal.is_destination_specific:
            journal.stop()
            yield from self._port_by_port(destination, packets, left, right)
            return
        differences = tuple(self._differing(ComparedClass(destination, packets, NEW_CLIENT), left, right))
        questions = journal.stop()
        if questions is not None and len(self._asking) == asking:
            alike.append(SharedResult(packets.fields.ports, questions, differences, self.counts.since(before)))
        yield from differences

    def _port_by_port(
        self, destination: DestinationClass, packets: PacketClass, left: Sequence[Path], right: Sequence[Path]
    ) -> Iterator[Difference]:
        """Yield the differences of packets to a destination of which something particular is said of some ports."""
        for ports, of_left, of_right in split_by_ports(left, right):
            there = replace(packets, fields=packets.fields._replace(ports=ports))
            if _is_settled(of_left, of_right):
                self._count_equal(of_left, of_right)
            elif sole_value(ports) is None and ports != packets.fields.ports:
                yield from self._of_new_clients(destination, there)
            else:
                yield from self._judged(ComparedClass(destination, there, NEW_CLIENT), of_left, of_right)

    def _compared(self, destination: DestinationClass, packets: PacketClass, client: Client) -> Iterator[Difference]:
        left, right = self._ways(packets, client)
        if client is NEW_CLIENT:
            self._note_memory(destination, packets, left, right)
        yield from self._differing(ComparedClass(destination, packets, client), left, right)

    def _ways(self, packets: PacketClass, client: Client) -> tuple[list[Path], list[Path]]:
        return self._left.paths(packets, client.left), self._right.paths(packets, client.right)

    def _differing(self, case: ComparedClass, left: Sequence[Path], right: Sequence[Path]) -> Iterator[Difference]:
        if _is_settled(left, right):
            self._count_equal(left, right)
            return
        for ports, of_left, of_right in split_by_ports(left, right):
            if _is_settled(of_left, of_right):
                self._count_equal(of_left, of_right)
            else:
                packets = replace(case.packets, fields=case.packets.fields._replace(ports=ports))
                yield from self._judged(case._replace(packets=packets), of_left, of_right)

    def _count_equal(self, left: Sequence[Path], right: Sequence[Path]) -> None:
        self.counts.equal += _boxes(left, right)

    def _judged(self, case: ComparedClass, left: Sequence[Path], right: Sequence[Path]) -> Iterator[Difference]:
        ways = left, right
        kind = difference_kind(case, ways)
        reasons = self._usual_reasons(case, ways, self._latest.get(kind, frozenset()))
        if reasons is not None:
            # One of these is the difference.
            self.counts.equal += _boxes(left, right) - 1
            yield self._meant(case, reasons, ways)
            return
        differing = []
        for piece in partition(left, right):
            if piece.is_undecided:
                self.counts.undecided += 1
                yield case.difference(piece)
            elif outcome_shares(piece.left) == outcome_shares(piece.right):
                self.counts.equal += 1
            else:
                differing.append(piece)
        if differing:
            yield from self._explained(case, ways, kind, self._existing(case, differing))

    def _usual_reasons(self, case: ComparedClass, ways: PathPair, latest: frozenset[str]) -> frozenset[str] | None:
        """Return those reasons of the last differences like these that account for all of these as well."""
        if any(path.outcome.disposition is Disposition.UNDECIDED for path in (*ways[0], *ways[1])):
            return None
        tried = _parts_of(latest)
        return next((reasons for reasons in tried if _is_settled(*self._without(case, ways, reasons))), None)

    def _existing(self, case: ComparedClass, parts: list[Piece]) -> list[Piece]:
        """Return the packets that there are: later ones follow a first one that was let through on both sides."""
        return [there for part in parts for there in self._following(case, part)]

    def _following(self, case: ComparedClass, piece: Piece) -> list[Piece]:
        states = piece.fields.states
        if "new" in states or "established" not in states:
            return [piece]
        first = replace(case.packets, fields=piece.fields._replace(states=frozenset({"new"})))
        opened = [
            clip_piece(piece, part.fields._replace(states=frozenset({"established"})))
            for part in partition(*self._ways(first, case.client))
            if all(
                any(path.outcome.disposition is Disposition.DELIVERED for path in side)
                for side in (part.left, part.right)
            )
        ]
        others = states - {"established"}
        return [*opened, *([clip_piece(piece, piece.fields._replace(states=others))] if others else [])]

    def _explained(
        self, case: ComparedClass, ways: PathPair, kind: DifferenceKind, rest: list[Piece]
    ) -> Iterator[Difference]:
        """Yield differences in parts, each with the first reason that accounts for it, or with all that it takes."""
        for reasons in self._in_order(self._latest.get(kind, frozenset())):
            equal, rest = self._split(case, ways, rest, reasons)
            if equal:
                self._latest[kind] = reasons
            for part in equal:
                yield self._meant(case, reasons, (part.left, part.right), part)
            if not rest:
                return
        every = frozenset(self._intentions.reasons)
        equal, rest = self._split(case, ways, self._existing(case, rest), every)
        for part in equal:
            reasons = self._needed(case, ways, part)
            if reasons not in self._tried:
                self._tried.append(reasons)
            yield self._meant(case, reasons, (part.left, part.right), part)
        for part in self._beside_intent(case, ways, rest, every):
            self.counts.different += 1
            yield case.difference(part)

    def _beside_intent(
        self, case: ComparedClass, ways: PathPair, rest: list[Piece], every: frozenset[str]
    ) -> Iterator[Piece]:
        """Yield differences as they are without all that is meant, which would be seen first and is not the point."""
        left, right = self._without(case, ways, every)
        for part in rest:
            inside = partition(clip_paths(left, part.fields), clip_paths(right, part.fields))
            found = [piece for piece in inside if outcome_shares(piece.left) != outcome_shares(piece.right)]
            yield from found or [part]

    def _in_order(self, latest: frozenset[str]) -> Iterator[frozenset[str]]:
        """Yield sets of reasons to try: first what a difference like it came of, and parts of that."""
        first = _parts_of(latest)
        yield from first
        yield from (reasons for reasons in self._tried if reasons not in first)

    def _meant(
        self, case: ComparedClass, reasons: frozenset[str], ways: PathPair, piece: Piece | None = None
    ) -> Difference:
        self.counts.by_intent += 1
        listed = tuple(reason for reason in self._intentions.reasons if reason in reasons)
        return Difference(case.destination, case.packets, case.client, listed, ways, piece)

    def _needed(self, case: ComparedClass, ways: PathPair, piece: Piece) -> frozenset[str]:
        """Return as few reasons as account for a difference of which all together do."""
        needed = frozenset(self._intentions.reasons)
        for reason in self._intentions.reasons:
            _, unequal = self._split(case, ways, [piece], needed - {reason})
            if not unequal:
                needed -= {reason}
        return needed

    def _split(
        self, case: ComparedClass, ways: PathPair, parts: list[Piece], reasons: frozenset[str]
    ) -> tuple[list[Piece], list[Piece]]:
        """Return what fares alike on both sides without some intended differences, and what does not."""
        left, right = self._without(case, ways, reasons)
        found: tuple[list[Piece], list[Piece]] = ([], [])
        for part in parts:
            inside = clip_paths(left, part.fields), clip_paths(right, part.fields)
            if are_equal(*inside):
                found[0].append(part)
                continue
            for other in partition(*inside):
                found[outcome_shares(other.left) != outcome_shares(other.right)].append(clip_piece(part, other.fields))
        return found

    def _without(self, case: ComparedClass, ways: PathPair, reasons: frozenset[str]) -> PathPair:
        """Return the ways without some intended differences; those of a side that is as it was are known."""
        sides = self._walkers.get(reasons)
        if sides is None:
            left, right = self._intentions.rule_sets_without(reasons)
            sides = self._walkers[reasons] = (
                self._left if left is self._sides[0] else self._walker(left),
                self._right if right is self._sides[1] else self._walker(right),
            )
        return (
            ways[0] if sides[0] is self._left else sides[0].paths(case.packets, case.client.left),
            ways[1] if sides[1] is self._right else sides[1].paths(case.packets, case.client.right),
        )

    def _note_memory(
        self, destination: DestinationClass, packets: PacketClass, left: Sequence[Path], right: Sequence[Path]
    ) -> None:
        """Keep what either side will know of clients, and who asks for it, port by port."""
        if not any(path.read_entries or path.written_entries for path in (*left, *right)):
            return
        for ports, looked_up in entries_read_by_ports((*left, *right)).items():
            narrowed = replace(packets, fields=packets.fields._replace(ports=ports))
            self._asking.append((destination, narrowed, looked_up))
        # A client whom one side alone sends there, or remembers, fares otherwise before: a difference by itself.
        of_left, of_right = entries_written_by_endpoint(left), entries_written_by_endpoint(right)
        for endpoint in of_left.keys() & of_right.keys():
            client = Client(endpoint[1:3], of_left[endpoint], of_right[endpoint])
            for memory in client.left | client.right:
                self._sticky.setdefault(memory, {})[client] = None


def _boxes(left: Sequence[Path], right: Sequence[Path]) -> int:
    """Count the parts that packets were told apart in."""
    return len({path.fields for path in left} | {path.fields for path in right})


def _is_settled(left: Sequence[Path], right: Sequence[Path]) -> bool:
    """Tell whether both sides do the same, and know what they do."""
    return are_equal(left, right) and not any(path.outcome.disposition is Disposition.UNDECIDED for path in left)


def _parts_of(reasons: frozenset[str]) -> list[frozenset[str]]:
    """Return all choices of some reasons, the smallest first."""
    sizes = range(1, len(reasons) + 1)
    return [frozenset(chosen) for size in sizes for chosen in combinations(sorted(reasons), size)]
