"""Sets of numbers as sorted, disjoint, inclusive ranges: addresses, ports, marks."""

from bisect import bisect_right
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
"""Inclusive (first, last) pairs in ascending order; neighbouring pairs do not touch."""

EMPTY: Ranges = ()
PORTS: Ranges = ((0, 65535),)
ADDRESSES: dict[int, Ranges] = {4: ((0, (1 << 32) - 1),), 6: ((0, (1 << 128) - 1),)}
"""All addresses, by IP version."""
LOOPBACK: dict[int, Ranges] = {4: ((127 << 24, (128 << 24) - 1),), 6: ((1, 1),)}
"""Loopback addresses, by IP version: every host has them, and the kernel drops packets to them from the network."""
NON_UNICAST: dict[int, Ranges] = {
    4: ((0, (1 << 24) - 1), (224 << 24, (1 << 32) - 1)),
    6: ((0, 0), (0xFF << 120, (1 << 128) - 1)),
}
"""Addresses that are not unicast: unspecified, multicast, broadcast and reserved ones."""


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Return normalized ranges that cover the same numbers as ``pairs``, which may overlap and be unsorted."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def single(number: int) -> Ranges:
    """Return ranges that contain one number."""
    return ((number, number),)


def network(address: int, prefix_length: int, width: int) -> Ranges:
    """Return the addresses of a network; ``width`` is the address length, 32 or 128. Host bits are ignored."""
    size = 1 << (width - prefix_length)
    first = address & ~(size - 1)
    return ((first, first + size - 1),)


def contains(values: Ranges, number: int) -> bool:
    """Return whether a number is in the ranges."""
    index = bisect_right(values, (number, 1 << 129)) - 1
    return index >= 0 and values[index][1] >= number


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """Return the numbers that are in both ranges."""
    if len(other) > len(one):
        one, other = other, one
    if len(other) == 1:
        return _clip(one, *other[0])
    found: list[tuple[int, int]] = []
    for first, last in other:
        found += _clip(one, first, last)
    return tuple(found)


def _clip(values: Ranges, first: int, last: int) -> Ranges:
    """Return the numbers of ``values`` from ``first`` to ``last``."""
    low = bisect_right(values, (first, -1))
    if low and values[low - 1][1] >= first:
        low -= 1
    high = bisect_right(values, (last, 1 << 129))
    if low >= high:
        return ()
    inside = values[low:high]
    start, end = inside[0], inside[-1]
    if start[0] >= first and end[1] <= last:
        return inside
    cut = list(inside)
    cut[0] = (max(start[0], first), cut[0][1])
    cut[-1] = (cut[-1][0], min(end[1], last))
    return tuple(cut)


def subtract(values: Ranges, removed: Ranges) -> Ranges:
    """Return the numbers of ``values`` that are not in ``removed``."""
    if not removed or not values:
        return values
    return intersection(values, _complement(removed))


def _complement(values: Ranges) -> Ranges:
    """Return all numbers from -1 to 2**128 that are not in ``values``."""
    found = []
    start = -1
    for first, last in values:
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    found.append((start, 1 << 128))
    return tuple(found)


def sole_value(values: Ranges) -> int | None:
    """Return the number if the ranges contain exactly one, else None."""
    if len(values) == 1 and values[0][0] == values[0][1]:
        return values[0][0]
    return None
