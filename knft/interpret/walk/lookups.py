"""Looks up keys in collections, for all packets of a class at once."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from knft.interpret.outcomes import PacketFields
from knft.interpret.ranges import Ranges, intersection, ranges, subtract
from knft.interpret.rules import Element, Field, KeyPart, RandomNumber
from knft.interpret.walk.index import CollectionQuery, IndexedCollection
from knft.interpret.walk.packet import PacketState

_ALL = Fraction(1)


class LookupResult(NamedTuple):
    """The element that some of the packets find, or None."""

    fields: PacketFields
    share: Fraction
    element: Element | None


def look_up(packet: PacketState, collection: IndexedCollection, key: tuple[KeyPart, ...]) -> Iterator[LookupResult]:
    """Yield the elements that the packets find for a key; together the results cover all packets."""
    for share, parts in _expand_random_numbers(key):
        known: dict[int, int] = {}
        variable: dict[int, Field] = {}
        for position, part in enumerate(parts):
            if isinstance(part, int):
                known[position] = part
                continue
            values = packet.numbers(part)
            if values is None:
                yield LookupResult(packet.fields, share, None)
                break
            if isinstance(values, int):
                known[position] = values
            elif len(values) == 1 and values[0][0] == values[0][1]:
                known[position] = values[0][0]
            else:
                variable[position] = part
        else:
            _record(packet, collection, key, known)
            elements = collection.matching(known)
            yield from _split(packet, elements, tuple(variable.items()), share)


def _record(
    packet: PacketState, collection: IndexedCollection, key: tuple[KeyPart, ...], known: dict[int, int]
) -> None:
    """Record a lookup whose key contains the destination."""
    if Field.DESTINATION in key:
        destination = key.index(Field.DESTINATION)
        has_variable_port = packet.port is None and Field.DESTINATION_PORT in key
        port = key.index(Field.DESTINATION_PORT) if has_variable_port else None
        numbers = tuple((at, 0 if at == destination else number) for at, number in known.items() if at != port)
        query = CollectionQuery(collection, numbers, destination, port)
        collection.recorder.record(query, packet.destination, packet.fields.ports)


def _expand_random_numbers(key: tuple[KeyPart, ...]) -> Iterator[tuple[Fraction, tuple[Field | int, ...]]]:
    """Yield the key for each value of its random numbers, and the share of packets that have it."""
    before: list[Field | int] = []
    for position, part in enumerate(key):
        if not isinstance(part, RandomNumber):
            before.append(part)
        else:
            share = Fraction(1, part.modulus)
            for number in range(part.offset, part.offset + part.modulus):
                for more, rest in _expand_random_numbers(key[position + 1 :]):
                    yield share * more, (*before, number, *rest)
            return
    yield _ALL, tuple(before)


def _split(
    packet: PacketState, elements: list[Element], fields: tuple[tuple[int, Field], ...], share: Fraction
) -> Iterator[LookupResult]:
    """Split a class by the elements that its packets find; ``fields`` are the key's fields with several values."""
    if not fields or not elements:
        yield LookupResult(packet.fields, share, elements[0] if elements else None)
        return
    (position, field), *rest = fields
    values: Ranges = packet.numbers(field)  # type: ignore[assignment]
    by_range: dict[tuple[int, int], list[Element]] = {}
    for element in elements:
        part = element.key[position]
        by_range.setdefault((part, part) if isinstance(part, int) else part, []).append(element)
    missing = subtract(values, ranges(by_range))
    if missing:
        yield LookupResult(packet.with_field(field, missing), share, None)
    if not rest and all(element.value is None for element in elements):
        inside = intersection(values, ranges(by_range))
        if inside:
            yield LookupResult(packet.with_field(field, inside), share, elements[0])
        return
    for pieces, covering in _disjoint(by_range):
        inside = intersection(values, pieces)
        if inside:
            yield from _split(packet.restricted_to(packet.with_field(field, inside)), covering, tuple(rest), share)


def _disjoint(by_range: dict[tuple[int, int], list[Element]]) -> Iterator[tuple[Ranges, list[Element]]]:
    """Yield disjoint ranges, with the elements that cover each."""
    listed = sorted(by_range)
    if all(one[1] < other[0] for one, other in pairwise(listed)):
        for pair in listed:
            yield (pair,), by_range[pair]
        return
    edges = sorted({edge for first, last in listed for edge in (first, last + 1)})
    for first, after in pairwise(edges):
        covering = [
            element for low, high in listed if low <= first and after - 1 <= high for element in by_range[low, high]
        ]
        if covering:
            yield ((first, after - 1),), covering
