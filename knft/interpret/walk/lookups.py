"""Looks keys up in collections for all packets of a class at once."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from knft.interpret.outcomes import Box
from knft.interpret.ranges import Ranges, common, ranges, without
from knft.interpret.rules import Element, Field, Part, Random
from knft.interpret.walk.index import InCollection, IndexedCollection
from knft.interpret.walk.packet import Packet

_ALL = Fraction(1)


class Found(NamedTuple):
    """What some of the packets find: an element, or None."""

    box: Box
    share: Fraction
    element: Element | None


def look_up(packet: Packet, collection: IndexedCollection, key: tuple[Part, ...]) -> Iterator[Found]:
    """Yield what the packets find under a key; together the results are all packets."""
    for share, parts in _drawn(key):
        known: dict[int, int] = {}
        open_: dict[int, Field] = {}
        for position, part in enumerate(parts):
            if isinstance(part, int):
                known[position] = part
                continue
            held = packet.numbers(part)
            if held is None:
                yield Found(packet.box, share, None)
                break
            if isinstance(held, int):
                known[position] = held
            elif len(held) == 1 and held[0][0] == held[0][1]:
                known[position] = held[0][0]
            else:
                open_[position] = part
        else:
            _note(packet, collection, key, known)
            elements = collection.matching(known)
            yield from _split(packet, elements, tuple(open_.items()), share)


def _note(packet: Packet, collection: IndexedCollection, key: tuple[Part, ...], known: dict[int, int]) -> None:
    """Have the journal know what is asked about the destination."""
    if Field.DESTINATION in key:
        about = key.index(Field.DESTINATION)
        port = (
            None if packet.port is not None or Field.DESTINATION_PORT not in key else key.index(Field.DESTINATION_PORT)
        )
        numbers = tuple((at, 0 if at == about else number) for at, number in known.items() if at != port)
        collection.journal.note(InCollection(collection, numbers, about, port), packet.destination, packet.box.ports)


def _drawn(key: tuple[Part, ...]) -> Iterator[tuple[Fraction, tuple[Field | int, ...]]]:
    """Yield a key for each number that can be drawn, and the share of packets that have it."""
    before: list[Field | int] = []
    for position, part in enumerate(key):
        if not isinstance(part, Random):
            before.append(part)
        else:
            share = Fraction(1, part.modulus)
            for number in range(part.offset, part.offset + part.modulus):
                for more, rest in _drawn(key[position + 1 :]):
                    yield share * more, (*before, number, *rest)
            return
    yield _ALL, tuple(before)


def _split(
    packet: Packet, elements: list[Element], fields: tuple[tuple[int, Field], ...], share: Fraction
) -> Iterator[Found]:
    """Split a class by the elements that its packets find; ``fields`` are those that may hold several numbers."""
    if not fields or not elements:
        yield Found(packet.box, share, elements[0] if elements else None)
        return
    (position, field), *rest = fields
    held: Ranges = packet.numbers(field)  # type: ignore[assignment]
    by_range: dict[tuple[int, int], list[Element]] = {}
    for element in elements:
        part = element.key[position]
        by_range.setdefault((part, part) if isinstance(part, int) else part, []).append(element)
    missed = without(held, ranges(by_range))
    if missed:
        yield Found(packet.narrowed(field, missed), share, None)
    if not rest and all(element.value is None for element in elements):
        inside = common(held, ranges(by_range))
        if inside:
            yield Found(packet.narrowed(field, inside), share, elements[0])
        return
    for pieces, there in _apart(by_range):
        inside = common(held, pieces)
        if inside:
            yield from _split(packet.within(packet.narrowed(field, inside)), there, tuple(rest), share)


def _apart(by_range: dict[tuple[int, int], list[Element]]) -> Iterator[tuple[Ranges, list[Element]]]:
    """Yield ranges that do not overlap, with the elements of each."""
    listed = sorted(by_range)
    if all(one[1] < other[0] for one, other in pairwise(listed)):
        for pair in listed:
            yield (pair,), by_range[pair]
        return
    edges = sorted({edge for first, last in listed for edge in (first, last + 1)})
    for first, after in pairwise(edges):
        there = [
            element for low, high in listed if low <= first and after - 1 <= high for element in by_range[low, high]
        ]
        if there:
            yield ((first, after - 1),), there
