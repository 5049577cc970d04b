"""Compares the outcomes of all packet classes in two rule sets, and finds the expected differences.

Two packets are in one class if no rule on either side tells them apart before a walk. ``partition`` cuts a class into
pieces: packets of a piece have the same outcomes within each side.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from itertools import combinations
from typing import Protocol

from msgspec.structs import replace

from knft.interpret.compare.blocking_rules import BlockedFrontend, BlockingRule, blocking_rules
from knft.interpret.compare.findings import (
    NEW_CLIENT,
    AffinityKey,
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
from knft.interpret.outcomes import AffinityEntry, Disposition, Origin, PacketClass, PacketFields, Path
from knft.interpret.ranges import PORTS, Ranges, contains, intersection, ranges, sole_value
from knft.interpret.rules import RuleSet
from knft.interpret.walk.index import Indexes
from knft.interpret.walk.walker import Walker

_MAX_EARLIER_PACKETS = 8
"""The most packets that are remembered for each client; an example needs one that the client can send."""

Progress = Callable[[int, int], None]
"""Called with the number of destination classes that are done, and their total number."""


class ExpectedDifferenceEdits(Protocol):
    """The expected differences, by name, and the edits of the rule sets that remove them."""

    names: tuple[str, ...]

    def edited_rule_sets(self, names: frozenset[str]) -> tuple[RuleSet, RuleSet]:
        """Return the left and the right rule set, edited so that these expected differences disappear."""


class Comparison:
    """Compares two rule sets, left and right; ``counts`` is updated while ``differences`` is consumed."""

    def __init__(
        self,
        left: RuleSet,
        right: RuleSet,
        classes: PacketClasses,
        node_addresses: Ranges,
        expected: ExpectedDifferenceEdits,
    ) -> None:
        """Index both rule sets; edited rule sets are indexed on first use."""
        self._indexes = Indexes()
        self._node_addresses = node_addresses
        self._ipvs_addresses = ranges((*left.ipvs_addresses, *right.ipvs_addresses))
        self._shared_results: dict[Hashable, list[SharedResult]] = {}
        self._left = self._walker(left)
        self._right = self._walker(right)
        self._walkers = {id(left): (left, self._left), id(right): (right, self._right)}
        """The walkers and their rule sets, by the identities of the rule sets."""
        self._classes = classes
        self._ports = classes.mentioned_ports
        self._expected = expected
        self._known_differences = [frozenset({name}) for name in expected.names]
        self._latest_differences: dict[DifferenceKind, frozenset[str]] = {}
        self._walkers_with_edits: dict[frozenset[str], tuple[Walker, Walker]] = {}
        self._clients: dict[AffinityEntry, dict[Client, None]] = {}
        self._earlier_packets: dict[tuple[Client, Origin], list[PacketClass]] = {}
        """For each client and origin, packets that made the client's affinity entries."""
        self._affinity_lookups: list[tuple[DestinationClass, PacketClass, frozenset[AffinityEntry]]] = []
        self.counts = Counts()
        self.blocked: dict[BlockingRule, dict[BlockedFrontend, None]] = {}
        """The rules of other programs that block packets on both sides, and the destinations of these packets."""

    def _walker(self, rules: RuleSet) -> Walker:
        return Walker(rules, self._node_addresses, self._indexes)

    def _walker_of(self, rules: RuleSet) -> Walker:
        """Return the walker of a rule set, one for each object."""
        if id(rules) not in self._walkers:
            self._walkers[id(rules)] = rules, self._walker(rules)
        return self._walkers[id(rules)][1]

    def differences(self, progress: Progress = lambda _, __: None) -> Iterator[Difference]:
        """Yield all differences: first those of new clients, then those of clients with affinity entries."""
        destinations = self._classes.destinations()
        # The loop appends classes for the new destinations of translated packets.
        for number, destination in enumerate(destinations):
            progress(number, len(destinations))
            self._take_new_destinations()
            for packets in self._classes.packets(destination):
                yield from self._compare_new_clients(destination, packets)
            destinations += self._classes.split_off_new_destinations(destination, self._take_new_destinations())
        progress(len(destinations), len(destinations))
        for destination, packets, entries in self._affinity_lookups:
            clients = {client: None for entry in sorted(entries) for client in self._clients.get(entry, ())}
            for client in clients:
                yield from self._compare(destination, packets, client)

    def _take_new_destinations(self) -> set[int]:
        """Return the addresses that rules have translated destinations to since the last call."""
        return self._left.take_new_destinations() | self._right.take_new_destinations()

    def _compare_new_clients(self, destination: DestinationClass, packets: PacketClass) -> Iterator[Difference]:
        """Yield the differences of clients without affinity entries; share the result of a similar destination."""
        if not destination.is_shareable:
            yield from self._compare(destination, packets, NEW_CLIENT)
            return
        is_ipvs_address = contains(self._ipvs_addresses, destination.address)
        all_ports = packets.fields._replace(ports=PORTS)
        key = destination.is_local, is_ipvs_address, packets.is_source_selected, packets.protocol, all_ports
        results = self._shared_results.setdefault(key, [])
        shared = next((result for result in results if result.applies_to(destination, packets, self._ports)), None)
        if shared is not None:
            self.counts.add(shared.counts)
            self._add_blocked(shared.blocked, packets)
            yield from (shared.difference_for(difference, destination, packets) for difference in shared.differences)
            return
        recorder, before, lookups = self._indexes.recorder, copy(self.counts), len(self._affinity_lookups)
        recorder.start()
        left, right = self._paths(packets, NEW_CLIENT)
        self._record_affinity(destination, packets, left, right)
        if recorder.is_destination_specific:
            recorder.stop()
            yield from self._compare_by_ports(destination, packets, left, right)
            return
        differences = tuple(self._compare_paths(ComparedClass(destination, packets, NEW_CLIENT), left, right))
        dependencies = recorder.stop()
        if dependencies is not None and len(self._affinity_lookups) == lookups:
            counts = self.counts.since(before)
            blocked = blocking_rules(left, right)
            results.append(SharedResult(packets.fields.ports, dependencies, differences, counts, blocked))
        yield from differences

    def _compare_by_ports(
        self, destination: DestinationClass, packets: PacketClass, left: Sequence[Path], right: Sequence[Path]
    ) -> Iterator[Difference]:
        """Yield the differences of packets to a destination for which the rules treat some ports individually."""
        for ports, left_paths, right_paths in split_by_ports(left, right):
            to_ports = replace(packets, fields=packets.fields._replace(ports=ports))
            if _are_decided_and_equal(left_paths, right_paths):
                self._count_equal(to_ports, left_paths, right_paths)
            elif sole_value(ports) is None and ports != packets.fields.ports:
                yield from self._compare_new_clients(destination, to_ports)
            else:
                compared = ComparedClass(destination, to_ports, NEW_CLIENT)
                yield from self._explain_class(compared, left_paths, right_paths)

    def _compare(self, destination: DestinationClass, packets: PacketClass, client: Client) -> Iterator[Difference]:
        left, right = self._paths(packets, client)
        if client is NEW_CLIENT:
            self._record_affinity(destination, packets, left, right)
        compared = ComparedClass(
            destination, packets, client, tuple(self._earlier_packets.get((client, packets.origin), ()))
        )
        yield from self._compare_paths(compared, left, right)

    def _paths(self, packets: PacketClass, client: Client) -> tuple[list[Path], list[Path]]:
        return self._left.paths(packets, client.left), self._right.paths(packets, client.right)

    def _compare_paths(
        self, compared: ComparedClass, left: Sequence[Path], right: Sequence[Path]
    ) -> Iterator[Difference]:
        if _are_decided_and_equal(left, right):
            self._count_equal(compared.packets, left, right)
            return
        for ports, left_paths, right_paths in split_by_ports(left, right):
            packets = replace(compared.packets, fields=compared.packets.fields._replace(ports=ports))
            if _are_decided_and_equal(left_paths, right_paths):
                self._count_equal(packets, left_paths, right_paths)
            else:
                yield from self._explain_class(compared._replace(packets=packets), left_paths, right_paths)

    def _count_equal(self, packets: PacketClass, left: Sequence[Path], right: Sequence[Path]) -> None:
        self.counts.equal += _count_parts(left, right)
        self._add_blocked(blocking_rules(left, right), packets)

    def _add_blocked(self, rules: frozenset[BlockingRule], packets: PacketClass) -> None:
        for rule in rules:
            frontend = packets.destination, packets.protocol, sole_value(packets.fields.ports), packets.is_local
            self.blocked.setdefault(rule, {})[frontend] = None

    def _explain_class(
        self, compared: ComparedClass, left: Sequence[Path], right: Sequence[Path]
    ) -> Iterator[Difference]:
        """Yield the differences of a class with the expected differences that explain them, and count its pieces."""
        paths = left, right
        kind = difference_kind(compared, paths)
        names = self._recent_differences(compared, paths, self._latest_differences.get(kind, frozenset()))
        if names is not None:
            # At least one piece differs. It counts as expected, without finding out which one it is.
            self.counts.equal += _count_parts(left, right) - 1
            yield self._expected_difference(compared, names, paths)
            return
        differing = []
        for piece in partition(left, right):
            if piece.is_undecided:
                self.counts.undecided += 1
                yield compared.difference_in(piece)
            elif outcome_shares(piece.left) == outcome_shares(piece.right):
                self.counts.equal += 1
                self._add_blocked(blocking_rules(piece.left, piece.right), compared.packets)
            else:
                differing.append(piece)
        if differing:
            yield from self._explain_pieces(
                compared, paths, kind, self._pieces_of_possible_connections(compared, differing)
            )

    def _recent_differences(
        self, compared: ComparedClass, paths: PathPair, latest: frozenset[str]
    ) -> frozenset[str] | None:
        """Return those of the latest expected differences of this kind that explain the whole class, if any do."""
        if any(path.outcome.disposition is Disposition.UNDECIDED for path in (*paths[0], *paths[1])):
            return None
        for names in _subsets(latest):
            if _are_decided_and_equal(*self._paths_with_edits(compared, paths, names)):
                return names
        return None

    def _pieces_of_possible_connections(self, compared: ComparedClass, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces without established packets whose connection cannot be opened on both sides."""
        return [possible for piece in pieces for possible in self._parts_with_possible_connections(compared, piece)]

    def _parts_with_possible_connections(self, compared: ComparedClass, piece: Piece) -> list[Piece]:
        states = piece.fields.states
        if "new" in states or "established" not in states:
            return [piece]
        first = replace(compared.packets, fields=piece.fields._replace(states=frozenset({"new"})))
        opened = [
            clip_piece(piece, part.fields._replace(states=frozenset({"established"})))
            for part in partition(*self._paths(first, compared.client))
            if all(
                any(path.outcome.disposition is Disposition.DELIVERED for path in side)
                for side in (part.left, part.right)
            )
        ]
        others = states - {"established"}
        return [*opened, *([clip_piece(piece, piece.fields._replace(states=others))] if others else [])]

    def _explain_pieces(
        self, compared: ComparedClass, paths: PathPair, kind: DifferenceKind, rest: list[Piece]
    ) -> Iterator[Difference]:
        """Yield a difference for each piece or part of one, with the names of the expected differences that explain it.

        Unexpected differences have no names.
        """
        for names in self._candidate_differences(self._latest_differences.get(kind, frozenset())):
            equal, rest = self._split_by_expected(compared, paths, rest, names)
            if equal:
                self._latest_differences[kind] = names
            for part in equal:
                yield self._expected_difference(compared, names, (part.left, part.right), part)
            if not rest:
                return
        all_names = frozenset(self._expected.names)
        equal, rest = self._split_by_expected(
            compared, paths, self._pieces_of_possible_connections(compared, rest), all_names
        )
        for part in equal:
            names = self._necessary_differences(compared, paths, part)
            if names not in self._known_differences:
                self._known_differences.append(names)
            yield self._expected_difference(compared, names, (part.left, part.right), part)
        for part, actual in self._unexpected_pieces(compared, paths, rest, all_names):
            self.counts.different += 1
            yield replace(compared.difference_in(part), actual_piece=actual)

    def _unexpected_pieces(
        self, compared: ComparedClass, paths: PathPair, rest: list[Piece], all_names: frozenset[str]
    ) -> Iterator[tuple[Piece, Piece]]:
        """Yield the differences that remain if the rule sets are edited to remove all expected differences.

        The second piece has the paths of these packets in the rule sets as they are.
        """
        left, right = self._paths_with_edits(compared, paths, all_names)
        for part in rest:
            inside = partition(clip_paths(left, part.fields), clip_paths(right, part.fields))
            differing = [piece for piece in inside if outcome_shares(piece.left) != outcome_shares(piece.right)]
            yield from ((piece, clip_piece(part, piece.fields)) for piece in differing or [part])

    def _candidate_differences(self, latest: frozenset[str]) -> Iterator[frozenset[str]]:
        """Yield sets of expected differences to try: first the subsets of the latest ones, then all known sets."""
        first = _subsets(latest)
        yield from first
        yield from (names for names in self._known_differences if names not in first)

    def _expected_difference(
        self, compared: ComparedClass, names: frozenset[str], paths: PathPair, piece: Piece | None = None
    ) -> Difference:
        self.counts.expected += 1
        ordered = tuple(name for name in self._expected.names if name in names)
        return compared.difference(paths, ordered, piece)

    def _necessary_differences(self, compared: ComparedClass, paths: PathPair, piece: Piece) -> frozenset[str]:
        """Return a minimal set of expected differences that explains one, given that all together explain it."""
        needed = frozenset(self._expected.names)
        for name in self._expected.names:
            _, unequal = self._split_by_expected(compared, paths, [piece], needed - {name})
            if not unequal:
                needed -= {name}
        return needed

    def _split_by_expected(
        self, compared: ComparedClass, paths: PathPair, pieces: list[Piece], names: frozenset[str]
    ) -> tuple[list[Piece], list[Piece]]:
        """Split pieces into packets with equal outcomes in the edited rule sets, and packets that still differ."""
        left, right = self._paths_with_edits(compared, paths, names)
        equal: list[Piece] = []
        different: list[Piece] = []
        for piece in pieces:
            inside = clip_paths(left, piece.fields), clip_paths(right, piece.fields)
            if are_equal(*inside):
                equal.append(piece)
                continue
            for part in partition(*inside):
                is_equal = outcome_shares(part.left) == outcome_shares(part.right)
                (equal if is_equal else different).append(clip_piece(piece, part.fields))
        return equal, different

    def _paths_with_edits(self, compared: ComparedClass, paths: PathPair, names: frozenset[str]) -> PathPair:
        """Return the paths in the rule sets that are edited for ``names``; reuse ``paths`` for an unedited side."""
        walkers = self._walkers_with_edits.get(names)
        if walkers is None:
            left, right = self._expected.edited_rule_sets(names)
            walkers = self._walkers_with_edits[names] = self._walker_of(left), self._walker_of(right)
        return (
            paths[0] if walkers[0] is self._left else walkers[0].paths(compared.packets, compared.client.left),
            paths[1] if walkers[1] is self._right else walkers[1].paths(compared.packets, compared.client.right),
        )

    def _record_affinity(
        self, destination: DestinationClass, packets: PacketClass, left: Sequence[Path], right: Sequence[Path]
    ) -> None:
        """Record the affinity entries that the paths write, and those that they look up, by port."""
        if not any(path.read_entries or path.written_entries for path in (*left, *right)):
            return
        for ports, entries in entries_read_by_ports((*left, *right)).items():
            to_ports = replace(packets, fields=packets.fields._replace(ports=ports))
            self._affinity_lookups.append((destination, to_ports, entries))
        # If only one side sends a client to an endpoint, that difference is already reported: omit such clients.
        left_entries, right_entries = entries_written_by_endpoint(left), entries_written_by_endpoint(right)
        for endpoint in (known for known in left_entries if known in right_entries):
            client = Client(endpoint[1:3], left_entries[endpoint], right_entries[endpoint])
            fields = _fields_with_endpoint((left, right), endpoint, packets.fields)
            earlier = self._earlier_packets.setdefault((client, packets.origin), [])
            if len(earlier) < _MAX_EARLIER_PACKETS:
                earlier.append(replace(packets, fields=fields))
            for entry in client.left | client.right:
                self._clients.setdefault(entry, {})[client] = None


def _fields_with_endpoint(sides: PathPair, endpoint: AffinityKey, fields: PacketFields) -> PacketFields:
    """Return the fields of packets that reach an endpoint on both sides."""
    sources = fields.sources
    for paths in sides:
        there = (path for path in paths if (path.fields.ports, *path.outcome[1:3], path.outcome.seconds) == endpoint)
        sources = intersection(sources, ranges(pair for path in there for pair in path.fields.sources))
    return fields._replace(ports=endpoint[0], sources=sources)


def _count_parts(left: Sequence[Path], right: Sequence[Path]) -> int:
    """Return the number of parts of a class that the rules of at least one side distinguish."""
    return len({path.fields for path in left} | {path.fields for path in right})


def _are_decided_and_equal(left: Sequence[Path], right: Sequence[Path]) -> bool:
    """Return whether both sides are equal and no packet reaches an uninterpreted rule."""
    return are_equal(left, right) and not any(path.outcome.disposition is Disposition.UNDECIDED for path in left)


def _subsets(names: frozenset[str]) -> list[frozenset[str]]:
    """Return all non-empty subsets, the smallest first."""
    sizes = range(1, len(names) + 1)
    return [frozenset(chosen) for size in sizes for chosen in combinations(sorted(names), size)]
