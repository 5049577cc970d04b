"""Where two ways to treat the same packets differ.

Either way is given as paths: boxes that may overlap, each with the share of its packets that has an outcome. Equal
means: at every point, every outcome has the same share.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from knft.interpret.outcomes import Box, Fate, Outcome, Path, overlap
from knft.interpret.ranges import Ranges, ranges

Shares = frozenset[tuple[Outcome, Fraction]]
"""Every outcome and how many of the packets have it; together one."""


class Piece(NamedTuple):
    """Packets that fare alike on either side, and how they do."""

    box: Box
    left: tuple[Path, ...]
    right: tuple[Path, ...]

    @property
    def is_undecided(self) -> bool:
        """Whether on one side nobody knows."""
        return any(path.outcome.fate is Fate.UNDECIDED for path in (*self.left, *self.right))


def same(left: Sequence[Path], right: Sequence[Path]) -> bool:
    """Tell whether the same packets fare alike on both sides."""
    return all(_cancels(boxes, 0) for boxes in _signed(left, right))


def _signed(left: Sequence[Path], right: Sequence[Path]) -> Iterable[list[tuple[Box, Fraction]]]:
    """Return the boxes of each outcome with their shares, those of the right side being negative."""
    signed: dict[Outcome, list[tuple[Box, Fraction]]] = {}
    for path in left:
        signed.setdefault(path.outcome, []).append((path.box, path.share))
    for path in right:
        signed.setdefault(path.outcome, []).append((path.box, -path.share))
    return signed.values()


def _cancels(boxes: list[tuple[Box, Fraction]], dimension: int) -> bool:
    """Tell whether signed shares sum to nothing at every point, from some dimension of the boxes on."""
    first = boxes[0][0]
    while dimension < len(first) and all(box[dimension] == first[dimension] for box, _ in boxes):
        dimension += 1
    if dimension == len(first):
        return not sum(share for _, share in boxes)
    parts = _parts([box[dimension] for box, _ in boxes])
    return all(_cancels([boxes[number] for number in numbers], dimension + 1) for _, numbers in parts)


def a_difference(left: Sequence[Path], right: Sequence[Path]) -> Piece:
    """Return packets that fare alike on either side, but not on both; raise LookupError where there are none."""
    for boxes in _signed(left, right):
        for box, numbers in _split([box for box, _ in boxes], tuple(range(len(boxes))), 0, ()):
            if sum(boxes[number][1] for number in numbers):
                parts = pieces(within(left, box), within(right, box))
                return next(part for part in parts if shares(part.left) != shares(part.right))
    msg = "both sides do the same"
    raise LookupError(msg)


def pieces(left: Sequence[Path], right: Sequence[Path]) -> list[Piece]:
    """Return the packets of all paths, in pieces that fare alike; those that differ only in their boxes are one."""
    paths = (*((path, True) for path in left), *((path, False) for path in right))
    found: dict[tuple[Shares, Shares], list[tuple[Box, tuple[int, ...]]]] = {}
    for box, numbers in _split([path.box for path, _ in paths], tuple(range(len(paths))), 0, ()):
        sides: tuple[list[Path], list[Path]] = ([], [])
        for number in numbers:
            path, is_left = paths[number]
            sides[not is_left].append(path)
        found.setdefault((shares(sides[0]), shares(sides[1])), []).append((box, numbers))
    return [_piece(paths, merged, numbers) for parts in found.values() for merged, numbers in _merged(parts)]


def by_ports(left: Sequence[Path], right: Sequence[Path]) -> Iterator[tuple[Ranges, list[Path], list[Path]]]:
    """Yield the ports that both sides together tell apart, with the paths of each side to them."""
    paths = (*left, *right)
    for ports, numbers in _parts([path.box.ports for path in paths]):
        sides: tuple[list[Path], list[Path]] = ([], [])
        for number in numbers:
            path = paths[number]
            if path.box.ports != ports:
                path = path._replace(box=path.box._replace(ports=ports))
            sides[number >= len(left)].append(path)
        yield ports, *sides


def _piece(paths: Sequence[tuple[Path, bool]], box: Box, numbers: Iterable[int]) -> Piece:
    """Return a piece; its paths are those of one of its parts, which stand for those of the others."""
    there = [(paths[number][0]._replace(box=box), paths[number][1]) for number in numbers]
    return Piece(
        box,
        tuple(path for path, is_left in there if is_left),
        tuple(path for path, is_left in there if not is_left),
    )


def shares(paths: Iterable[Path]) -> Shares:
    """Return how many packets have which outcome, where all paths hold all packets."""
    found: dict[Outcome, Fraction] = {}
    for path in paths:
        found[path.outcome] = found.get(path.outcome, Fraction()) + path.share
    return frozenset(found.items())


def _split(
    boxes: Sequence[Box], numbers: tuple[int, ...], dimension: int, fixed: tuple[Any, ...]
) -> Iterator[tuple[Box, tuple[int, ...]]]:
    """Yield boxes that do not overlap, with the numbers of those that hold each."""
    if dimension == len(Box._fields):
        yield Box(*fixed), numbers
        return
    for extent, inside in _parts([boxes[number][dimension] for number in numbers]):
        there = tuple(numbers[number] for number in inside)
        yield from _split(boxes, there, dimension + 1, (*fixed, extent))


def _parts(extents: Sequence[Any]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Yield parts of one dimension with the numbers of the extents that hold each; parts that none holds are left out.

    An extent is a set of names, or ranges of numbers.
    """
    found: dict[tuple[int, ...], list[Any]] = {}
    if isinstance(extents[0], frozenset):
        for name in frozenset[str]().union(*extents):
            numbers = tuple(number for number, extent in enumerate(extents) if name in extent)
            found.setdefault(numbers, []).append(name)
        for numbers, names in found.items():
            yield frozenset(names), numbers
        return
    for numbers, pair in _between_edges(extents):
        found.setdefault(numbers, []).append(pair)
    for numbers, pairs in found.items():
        yield ranges(pairs), numbers


def _between_edges(extents: Sequence[Any]) -> Iterator[tuple[tuple[int, ...], tuple[int, int]]]:
    """Yield the stretches between all edges of some ranges, with the numbers of those that hold each."""
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


def _merged(parts: list[tuple[Box, tuple[int, ...]]]) -> Iterator[tuple[Box, tuple[int, ...]]]:
    """Yield as few boxes as there are when those that differ in one dimension alone become one."""
    for dimension in reversed(range(len(Box._fields))):
        alike: dict[tuple[Any, ...], list[tuple[Box, tuple[int, ...]]]] = {}
        for box, numbers in parts:
            alike.setdefault((*box[:dimension], *box[dimension + 1 :]), []).append((box, numbers))
        parts = [_joined(dimension, group) for group in alike.values()]
    yield from parts


def _joined(dimension: int, group: list[tuple[Box, tuple[int, ...]]]) -> tuple[Box, tuple[int, ...]]:
    box, numbers = group[0]
    if len(group) == 1:
        return box, numbers
    extents: list[Any] = [other[dimension] for other, _ in group]
    joined: Any
    if isinstance(extents[0], frozenset):
        joined = frozenset[str]().union(*extents)
    else:
        joined = ranges(pair for extent in extents for pair in extent)
    return box._replace(**{Box._fields[dimension]: joined}), numbers


def within(paths: Iterable[Path], box: Box) -> list[Path]:
    """Return what of some paths goes through a box."""
    cut = ((path, overlap(path.box, box)) for path in paths)
    return [path._replace(box=both) for path, both in cut if both is not None]


def cut(piece: Piece, box: Box) -> Piece:
    """Return those packets of a piece that are in a box, which is a part of its own."""
    left, right = ([path._replace(box=box) for path in side] for side in (piece.left, piece.right))
    return Piece(box, tuple(left), tuple(right))
