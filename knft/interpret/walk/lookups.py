"""Looks up keys in collections, for all packets of a class at once."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from knft.interpret.jhash import hash_slot
from knft.interpret.outcomes import PacketFields
from knft.interpret.ranges import Ranges, intersection, ranges, sole_value, subtract
from knft.interpret.rules import Element, Field, HashedFields, KeyPart, RandomNumber
from knft.interpret.walk.index import CollectionQuery, IndexedCollection
from knft.interpret.walk.packet import PacketState

_ALL = Fraction(1)

_Part = Field | RandomNumber | int
"""A part of a key without hashes."""


class LookupResult(NamedTuple):
    """The element that some of the packets find, or None."""

    fields: PacketFields
    share: Fraction
    element: Element | None


def look_up(packet: PacketState, collection: IndexedCollection, key: tuple[KeyPart, ...]) -> Iterator[LookupResult]:
    """Yield the elements that the packets find for a key; together the results cover all packets."""
    parts = tuple(_hashed(packet, part) if isinstance(part, HashedFields) else part for part in key)
    if isinstance(key[-1], HashedFields) and isinstance(parts[-1], RandomNumber):
        return _look_up_slots(packet, collection, parts[:-1], parts[-1])
    return _look_up(packet, collection, parts)


def _hashed(packet: PacketState, part: HashedFields) -> RandomNumber | int:
    """Return the hash if all packets of the class have the same one; other hashes are evenly distributed."""
    values = []
    for field, size in part.fields:
        numbers = packet.numbers(field)
        value = numbers if numbers is None or isinstance(numbers, int) else sole_value(numbers)
        if value is None:
            return RandomNumber(part.modulus)
        values.append((value, size))
    return hash_slot(values, part.modulus, part.seed)


def _look_up_slots(
    packet: PacketState, collection: IndexedCollection, key: tuple[_Part, ...], slot: RandomNumber
) -> Iterator[LookupResult]:
    """Yield one result for each value in the slots of a table of hashes; ``key`` is the key without the slot."""
    for share, parts in _expand_random_numbers(key):
        numbers = _numbers(packet, parts)
        if numbers is None:
            yield LookupResult(packet.fields, share, None)
        elif numbers.variable:
            for result in _look_up(packet, collection, (*parts, slot)):
                yield result._replace(share=share * result.share)
        else:
            _record(packet, collection, parts, numbers.known)
            for element, slots in collection.values_of_slots(numbers.known, slot.modulus):
                yield LookupResult(packet.fields, share * Fraction(slots, slot.modulus), element)


class _KeyNumbers(NamedTuple):
    """The numbers of a key by position: known ones, and fields with several possible values."""

    known: dict[int, int]
    variable: dict[int, Field]


def _numbers(packet: PacketState, parts: tuple[Field | int, ...]) -> _KeyNumbers | None:
    """Return the numbers of a key; None if the packet lacks a field."""
    found = _KeyNumbers({}, {})
    for position, part in enumerate(parts):
        values = part if isinstance(part, int) else packet.numbers(part)
        if values is None:
            return None
        number = values if isinstance(values, int) else sole_value(values)
        if number is not None:
            found.known[position] = number
        elif isinstance(part, Field):
            found.variable[position] = part
    return found


def _look_up(packet: PacketState, collection: IndexedCollection, key: tuple[_Part, ...]) -> Iterator[LookupResult]:
    for share, parts in _expand_random_numbers(key):
        numbers = _numbers(packet, parts)
        if numbers is None:
            yield LookupResult(packet.fields, share, None)
        else:
            _record(packet, collection, key, numbers.known)
            elements = collection.matching(numbers.known)
            yield from _split(packet, elements, tuple(numbers.variable.items()), share)


def _record(packet: PacketState, collection: IndexedCollection, key: tuple[_Part, ...], known: dict[int, int]) -> None:
    """Record a lookup whose key contains the destination."""
    if Field.DESTINATION in key:
        destination = key.index(Field.DESTINATION)
        has_variable_port = packet.port is None and Field.DESTINATION_PORT in key
        port = key.index(Field.DESTINATION_PORT) if has_variable_port else None
        numbers = tuple((at, 0 if at == destination else number) for at, number in known.items() if at != port)
        query = CollectionQuery(collection, numbers, destination, port)
        collection.recorder.record(query, packet.destination, packet.fields.ports)


def _expand_random_numbers(key: tuple[_Part, ...]) -> Iterator[tuple[Fraction, tuple[Field | int, ...]]]:
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
