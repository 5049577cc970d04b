"""Sets of numbers as sorted, disjoint, inclusive ranges: addresses, ports, marks."""

from bisect import bisect_right
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
"""Sorted by their first numbers; two neighbours never touch."""

NOTHING: Ranges = ()
PORTS: Ranges = ((0, 65535),)
PROTOCOLS: Ranges = ((0, 255),)
ADDRESSES: dict[int, Ranges] = {4: ((0, (1 << 32) - 1),), 6: ((0, (1 << 128) - 1),)}
"""All addresses, by the version of IP."""
LOOPBACK: dict[int, Ranges] = {4: ((127 << 24, (128 << 24) - 1),), 6: ((1, 1),)}
"""The addresses that every machine has, and that never come in from outside."""


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges that cover just what ``pairs`` cover, in whatever order and overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def single(number: int) -> Ranges:
    """Return the range of one number."""
    return ((number, number),)


def network(address: int, prefix_length: int, width: int) -> Ranges:
    """Return the addresses of a network; ``width`` is 32 or 128, and host bits are cleared."""
    size = 1 << (width - prefix_length)
    first = address & ~(size - 1)
    return ((first, first + size - 1),)


def contains(where: Ranges, number: int) -> bool:
    """Tell whether a number is in the ranges."""
    at = bisect_right(where, (number, 1 << 129)) - 1
    return at >= 0 and where[at][1] >= number


def common(one: Ranges, other: Ranges) -> Ranges:
    """Return what both have."""
    if len(other) > len(one):
        one, other = other, one
    if len(other) == 1:
        return _within(one, *other[0])
    found: list[tuple[int, int]] = []
    for first, last in other:
        found += _within(one, first, last)
    return tuple(found)


def _within(where: Ranges, first: int, last: int) -> Ranges:
    """Return what of ``where`` lies between two numbers."""
    low = bisect_right(where, (first, -1))
    if low and where[low - 1][1] >= first:
        low -= 1
    high = bisect_right(where, (last, 1 << 129))
    if low >= high:
        return ()
    inside = where[low:high]
    start, end = inside[0], inside[-1]
    if start[0] >= first and end[1] <= last:
        return inside
    cut = list(inside)
    cut[0] = (max(start[0], first), cut[0][1])
    cut[-1] = (cut[-1][0], min(end[1], last))
    return tuple(cut)


def without(where: Ranges, removed: Ranges) -> Ranges:
    """Return what of ``where`` is not in ``removed``."""
    if not removed or not where:
        return where
    return common(where, _complement(removed))


def _complement(where: Ranges) -> Ranges:
    """Return every number outside, down to -1 and up to beyond any address."""
    found = []
    start = -1
    for first, last in where:
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    found.append((start, 1 << 128))
    return tuple(found)


def only(where: Ranges) -> int | None:
    """Return the one number that there is, or None where there are more or none."""
    if len(where) == 1 and where[0][0] == where[0][1]:
        return where[0][0]
    return None
