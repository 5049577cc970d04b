"""Partitions packet classes into pieces whose packets have the same outcomes, and finds where two sides differ.

Each side is a list of paths, whose packet fields can overlap. Two sides are equal if for every packet, every outcome
has the same total share on both.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from knft.interpret.outcomes import Disposition, Outcome, PacketFields, Path, overlap
from knft.interpret.ranges import Ranges, ranges

Shares = frozenset[tuple[Outcome, Fraction]]
"""The outcomes and their shares, which sum to one."""


class Piece(NamedTuple):
    """Packets that have the same outcomes within each side, and their paths on both sides."""

    fields: PacketFields
    left: tuple[Path, ...]
    right: tuple[Path, ...]

    @property
    def is_undecided(self) -> bool:
        """Whether the packets reach an uninterpreted rule on one of the sides."""
        return any(path.outcome.disposition is Disposition.UNDECIDED for path in (*self.left, *self.right))


def are_equal(left: Sequence[Path], right: Sequence[Path]) -> bool:
    """Return whether all packets have the same outcomes with the same shares on both sides."""
    return all(_sums_to_zero(signed, 0) for signed in _signed_shares(left, right))


def _signed_shares(left: Sequence[Path], right: Sequence[Path]) -> Iterable[list[tuple[PacketFields, Fraction]]]:
    """Return the fields and shares of the paths of each outcome, with negative shares for the right side."""
    signed: dict[Outcome, list[tuple[PacketFields, Fraction]]] = {}
    for path in left:
        signed.setdefault(path.outcome, []).append((path.fields, path.share))
    for path in right:
        signed.setdefault(path.outcome, []).append((path.fields, -path.share))
    return signed.values()


def _sums_to_zero(all_fields: list[tuple[PacketFields, Fraction]], dimension: int) -> bool:
    """Return whether the signed shares sum to zero for all packets, looking at the fields from ``dimension`` on."""
    first = all_fields[0][0]
    while dimension < len(first) and all(fields[dimension] == first[dimension] for fields, _ in all_fields):
        dimension += 1
    if dimension == len(first):
        return not sum(share for _, share in all_fields)
    parts = _segments([fields[dimension] for fields, _ in all_fields])
    return all(_sums_to_zero([all_fields[number] for number in numbers], dimension + 1) for _, numbers in parts)


def first_difference(left: Sequence[Path], right: Sequence[Path]) -> Piece:
    """Return a piece whose outcomes differ between the sides; raise LookupError if the sides are equal."""
    for all_fields in _signed_shares(left, right):
        for fields, numbers in _split([fields for fields, _ in all_fields], tuple(range(len(all_fields))), 0, ()):
            if sum(all_fields[number][1] for number in numbers):
                parts = partition(clip_paths(left, fields), clip_paths(right, fields))
                return next(part for part in parts if outcome_shares(part.left) != outcome_shares(part.right))
    msg = "both sides are equal"
    raise LookupError(msg)


def partition(left: Sequence[Path], right: Sequence[Path]) -> list[Piece]:
    """Return the packets of all paths in pieces with the same outcomes; adjacent pieces are merged."""
    paths = (*((path, True) for path in left), *((path, False) for path in right))
    found: dict[tuple[Shares, Shares], list[tuple[PacketFields, tuple[int, ...]]]] = {}
    for fields, numbers in _split([path.fields for path, _ in paths], tuple(range(len(paths))), 0, ()):
        sides: tuple[list[Path], list[Path]] = ([], [])
        for number in numbers:
            path, is_left = paths[number]
            sides[not is_left].append(path)
        found.setdefault((outcome_shares(sides[0]), outcome_shares(sides[1])), []).append((fields, numbers))
    return [_piece(paths, merged, numbers) for parts in found.values() for merged, numbers in _merge_adjacent(parts)]


def split_by_ports(left: Sequence[Path], right: Sequence[Path]) -> Iterator[tuple[Ranges, list[Path], list[Path]]]:
    """Yield the ranges of ports that the paths distinguish, with the paths of each side to these ports."""
    paths = (*left, *right)
    for ports, numbers in _segments([path.fields.ports for path in paths]):
        sides: tuple[list[Path], list[Path]] = ([], [])
        for number in numbers:
            path = paths[number]
            if path.fields.ports != ports:
                path = path._replace(fields=path.fields._replace(ports=ports))
            sides[number >= len(left)].append(path)
        yield ports, *sides


def _piece(paths: Sequence[tuple[Path, bool]], fields: PacketFields, numbers: Iterable[int]) -> Piece:
    """Return a piece; its paths are those of one of the merged parts, whose outcomes are the same."""
    there = [(paths[number][0]._replace(fields=fields), paths[number][1]) for number in numbers]
    return Piece(
        fields,
        tuple(path for path, is_left in there if is_left),
        tuple(path for path, is_left in there if not is_left),
    )


def outcome_shares(paths: Iterable[Path]) -> Shares:
    """Return the share of each outcome, for paths that all have the same packet fields."""
    found: dict[Outcome, Fraction] = {}
    for path in paths:
        found[path.outcome] = found.get(path.outcome, Fraction()) + path.share
    return frozenset(found.items())


def _split(
    all_fields: Sequence[PacketFields], numbers: tuple[int, ...], dimension: int, fixed: tuple[Any, ...]
) -> Iterator[tuple[PacketFields, tuple[int, ...]]]:
    """Yield disjoint packet fields, with the numbers of the given ones that contain each."""
    if dimension == len(PacketFields._fields):
        yield PacketFields(*fixed), numbers
        return
    for extent, inside in _segments([all_fields[number][dimension] for number in numbers]):
        there = tuple(numbers[number] for number in inside)
        yield from _split(all_fields, there, dimension + 1, (*fixed, extent))


def _segments(extents: Sequence[Any]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Yield disjoint segments of one dimension, with the numbers of the extents that contain each.

    An extent is a set of names, or ranges of numbers. Segments that no extent contains are omitted.
    """
    found: dict[tuple[int, ...], list[Any]] = {}
    if isinstance(extents[0], frozenset):
        for name in sorted(frozenset[str]().union(*extents)):
            numbers = tuple(number for number, extent in enumerate(extents) if name in extent)
            found.setdefault(numbers, []).append(name)
        for numbers, names in found.items():
            yield frozenset(names), numbers
        return
    for numbers, pair in _intervals(extents):
        found.setdefault(numbers, []).append(pair)
    for numbers, pairs in found.items():
        yield ranges(pairs), numbers


def _intervals(extents: Sequence[Any]) -> Iterator[tuple[tuple[int, ...], tuple[int, int]]]:
    """Yield the intervals between all edges of the ranges, with the numbers of the extents that contain each."""
    edges: dict[int, tuple[list[int], list[int]]] = {}
    for number, extent in enumerate(extents):
        for first, last in extent:
            edges.setdefault(first, ([], []))[0].append(number)
            edges.setdefault(last + 1, ([], []))[1].append(number)
    inside: set[int] = set()
    start = 0
    for edge in sorted(edges):
        if inside:
            yield tuple(sorted(inside)), (start, edge - 1)
        begun, ended = edges[edge]
        inside.difference_update(ended)
        inside.update(begun)
        start = edge


def _merge_adjacent(
    parts: list[tuple[PacketFields, tuple[int, ...]]],
) -> Iterator[tuple[PacketFields, tuple[int, ...]]]:
    """Merge packet fields that differ in one dimension alone, for each dimension in turn."""
    for dimension in reversed(range(len(PacketFields._fields))):
        alike: dict[tuple[Any, ...], list[tuple[PacketFields, tuple[int, ...]]]] = {}
        for fields, numbers in parts:
            alike.setdefault((*fields[:dimension], *fields[dimension + 1 :]), []).append((fields, numbers))
        parts = [_merge_group(dimension, group) for group in alike.values()]
    yield from parts


def _merge_group(
    dimension: int, group: list[tuple[PacketFields, tuple[int, ...]]]
) -> tuple[PacketFields, tuple[int, ...]]:
    fields, numbers = group[0]
    if len(group) == 1:
        return fields, numbers
    extents: list[Any] = [other[dimension] for other, _ in group]
    joined: Any
    if isinstance(extents[0], frozenset):
        joined = frozenset[str]().union(*extents)
    else:
        joined = ranges(pair for extent in extents for pair in extent)
    return fields._replace(**{PacketFields._fields[dimension]: joined}), numbers


def clip_paths(paths: Iterable[Path], fields: PacketFields) -> list[Path]:
    """Return the paths of the packets in ``fields``."""
    cut = ((path, overlap(path.fields, fields)) for path in paths)
    return [path._replace(fields=both) for path, both in cut if both is not None]


def clip_piece(piece: Piece, fields: PacketFields) -> Piece:
    """Return the packets of a piece that are in ``fields``, a part of the piece's own."""
    left, right = ([path._replace(fields=fields) for path in side] for side in (piece.left, piece.right))
    return Piece(fields, tuple(left), tuple(right))
