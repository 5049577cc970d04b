"""Indexes chains and collections, so that a walk only evaluates rules and elements that can match the packet."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from knft.interpret.ranges import Ranges, contains, intersection, sole_value
from knft.interpret.rules import (
    Action,
    AddressType,
    Chain,
    Collection,
    Element,
    Field,
    Marked,
    Never,
    Rule,
    Step,
    Translated,
    Unknown,
    Verdict,
    ViaVirtualServer,
    Within,
)
from knft.interpret.walk.dependencies import DependencyRecorder


class Indexes:
    """A cache of the indexes of chains and collections, for rule sets that share some of them."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self.recorder = DependencyRecorder()
        # The value keeps the chain alive, so that no other object gets its id().
        self._chains: dict[int, tuple[Chain, IndexedChain]] = {}
        self._collections: dict[int, tuple[Collection, IndexedCollection]] = {}

    def of_chain(self, chain: Chain) -> "IndexedChain":
        """Return a chain's index."""
        cached = self._chains.get(id(chain))
        if cached is None:
            cached = self._chains[id(chain)] = (chain, IndexedChain(chain, self.recorder))
        return cached[1]

    def of_collection(self, collection: Collection) -> "IndexedCollection":
        """Return a collection's index."""
        cached = self._collections.get(id(collection))
        if cached is None:
            cached = self._collections[id(collection)] = (collection, IndexedCollection(collection, self.recorder))
        return cached[1]


class IndexedRule(NamedTuple):
    """A rule with its tests in the order of evaluation."""

    rule: Rule
    steps: tuple[Step, ...]
    first_action: int
    jump_target: str | None
    """The chain that the rule jumps to, if the jump is its only action and no test is unknown."""


class HasDestination(Protocol):
    """The attributes of a packet by which its candidate rules are found."""

    destination: int
    protocol: int

    @property
    def ports(self) -> Ranges:
        """The possible destination ports."""


class IndexedChain:
    """A chain's rules, indexed by the destination that they match."""

    def __init__(self, chain: Chain, recorder: DependencyRecorder) -> None:
        """Index a chain; ``recorder`` records the lookups by destination."""
        self._recorder = recorder
        self.name = chain.name
        # A rule without an action has no effect, whatever it matches.
        self.rules = tuple(_indexed(rule) for rule in chain.rules if _has_action(rule))
        self._by_destination: dict[int, list[tuple[int, int | None, int | None]]] = {}
        self._for_any_destination: list[int] = []
        for number, rule in enumerate(self.rules):
            address = _matched_value(rule.steps, Field.DESTINATION)
            if address is None:
                self._for_any_destination.append(number)
            else:
                protocol = _matched_value(rule.steps, Field.PROTOCOL)
                port = _matched_value(rule.steps, Field.DESTINATION_PORT)
                self._by_destination.setdefault(address, []).append((number, protocol, port))

    def candidate_rules(self, packet: HasDestination) -> list[int]:
        """Return the numbers of the rules that a packet can match, in order."""
        destination, protocol, ports = packet.destination, packet.protocol, packet.ports
        self._recorder.record(ChainQuery(self, protocol), destination, ports)
        specific = self.rules_for_destination(destination, protocol, ports)
        return sorted((*specific, *self._for_any_destination)) if specific else self._for_any_destination

    def rules_for_destination(self, destination: int, protocol: int, ports: Ranges) -> list[int]:
        """Return the numbers of the candidate rules that match this destination alone."""
        return [
            number
            for number, of_protocol, port in self._by_destination.get(destination, ())
            if of_protocol in (None, protocol) and (port is None or contains(ports, port))
        ]


class ChainQuery(NamedTuple):
    """Query: does the chain have rules for this destination alone."""

    chain: IndexedChain
    protocol: int

    def answer(self, destination: int, ports: Ranges) -> bool | None:
        """Return False if it has none, and None if it has some."""
        return None if self.chain.rules_for_destination(destination, self.protocol, ports) else False


def _has_action(rule: Rule) -> bool:
    return any(isinstance(step, Action | Unknown) for step in rule.steps)


def _indexed(rule: Rule) -> IndexedRule:
    """Among the tests before the first action, put the unknown ones last: they do not matter if another test fails."""
    steps = rule.steps
    tests = 0
    while tests < len(steps) and not isinstance(steps[tests], Action):
        tests += 1
    known = [step for step in steps[:tests] if not isinstance(step, Unknown)]
    # Tests that cannot split a class come first: they are fast and fail for most packets.
    known.sort(key=_can_split)
    unknown = [step for step in steps[:tests] if isinstance(step, Unknown)]
    last = steps[-1]
    jumps = tests == len(steps) - 1 and isinstance(last, Verdict) and last.kind == "jump" and not unknown
    leads_to = last.chain if jumps and isinstance(last, Verdict) else None
    return IndexedRule(rule, (*known, *unknown, *steps[tests:]), len(known), leads_to)


def _can_split(step: Step) -> bool:
    if isinstance(step, Within):
        return step.field not in (Field.DESTINATION, Field.PROTOCOL, Field.ORIGINAL_DESTINATION)
    return not isinstance(step, Marked | Translated | AddressType | ViaVirtualServer | Never)


def _matched_value(steps: tuple[Step, ...], field: Field) -> int | None:
    """Return the only value of a field that the rule matches, or None if there is no such value."""
    for step in steps:
        if isinstance(step, Action):
            return None
        if isinstance(step, Within) and step.field is field and not step.inverted:
            number = sole_value(step.ranges)
            if number is not None:
                return number
    return None


class IndexedCollection:
    """A set's or a map's elements, indexed by the parts of the key that a lookup knows."""

    def __init__(self, collection: Collection, recorder: DependencyRecorder) -> None:
        """Wrap a collection; its indexes are built on first use."""
        self.recorder = recorder
        self.name = collection.name
        self.is_dynamic = collection.is_dynamic
        self.seconds = collection.seconds
        self._elements = collection.elements
        self._values_of_slots: dict[tuple[int, ...], tuple[tuple[Element | None, int], ...]] = {}
        self._indexes: dict[tuple[int, ...], tuple[dict[tuple[int, ...], list[Element]], list[Element]]] = {}

    @property
    def elements(self) -> tuple[Element, ...]:
        """All elements."""
        return self._elements

    def matching(self, known: dict[int, int]) -> list[Element]:
        """Return the elements whose keys have these numbers at these positions."""
        positions = tuple(known)
        index = self._indexes.get(positions)
        if index is None:
            index = self._indexes[positions] = self._indexed(positions)
        exact, ranged = index
        elements = exact.get(tuple(known.values()), [])
        if not ranged:
            return elements
        return [*elements, *_covering(ranged, known)]

    def values_of_slots(self, known: dict[int, int], modulus: int) -> Sequence[tuple[Element | None, int]]:
        """Return an element for each value, and the number of slots with this value; None for slots without an element.

        The slot, from 0 to ``modulus - 1``, is the last part of the key; ``known`` has all others. A table of hashes
        has thousands of slots and few values, so walks must not go through the slots.
        """
        key = (*known.values(), modulus)
        values = self._values_of_slots.get(key)
        if values is None:
            values = self._values_of_slots[key] = tuple(_count_slots(self.matching(known), modulus))
        return values

    def _indexed(self, positions: tuple[int, ...]) -> tuple[dict[tuple[int, ...], list[Element]], list[Element]]:
        exact: dict[tuple[int, ...], list[Element]] = {}
        ranged: list[Element] = []
        for element in self._elements:
            parts = [element.key[position] for position in positions if position < len(element.key)]
            numbers = tuple(part for part in parts if isinstance(part, int))
            if len(numbers) == len(parts):
                exact.setdefault(numbers, []).append(element)
            else:
                ranged.append(element)
        return exact, ranged


def _count_slots(elements: Iterable[Element], modulus: int) -> Iterator[tuple[Element | None, int]]:
    of_value: dict[object, Element] = {}
    slots: Counter[object] = Counter()
    for element in elements:
        part = element.key[-1]
        first, last = (part, part) if isinstance(part, int) else part
        if first < modulus:
            slots[element.value] += min(last, modulus - 1) - first + 1
            of_value.setdefault(element.value, element)
    yield from ((of_value[value], number) for value, number in slots.items())
    if slots.total() < modulus:
        yield None, modulus - slots.total()


def _covering(ranged: list[Element], known: dict[int, int]) -> Iterator[Element]:
    for element in ranged:
        if all(covers(element.key[position], number) for position, number in known.items()):
            yield element


def covers(part: int | tuple[int, int], number: int) -> bool:
    """Return whether a part of an element's key includes a number."""
    return part == number if isinstance(part, int) else part[0] <= number <= part[1]


class CollectionQuery(NamedTuple):
    """Query: what does the collection contain for this destination.

    ``known`` are the known numbers of the key by position. ``position`` is the position of the destination, and
    ``port`` that of a destination port with several possible values.
    """

    collection: IndexedCollection
    known: tuple[tuple[int, int], ...]
    position: int
    port: int | None

    def answer(self, destination: int, ports: Ranges) -> bool | None:
        """Return whether the destination is in a set of addresses; None if an element has more key parts or a value."""
        known = {position: destination if position == self.position else number for position, number in self.known}
        found = [element for element in self.collection.matching(known) if self._includes_ports(element, ports)]
        if not found:
            return False
        return True if all(len(element.key) == 1 and element.value is None for element in found) else None

    def _includes_ports(self, element: Element, ports: Ranges) -> bool:
        if self.port is None:
            return True
        part = element.key[self.port]
        return bool(intersection(ports, ((part, part) if isinstance(part, int) else part,)))
