"""Chains and collections prepared for many walks: only what can concern a packet is looked at."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from knft.interpret.ranges import Ranges, common, contains, only
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
    ThroughServer,
    Translated,
    Unknown,
    Verdict,
    Within,
)
from knft.interpret.walk.journal import Journal


class Indexes:
    """The indexes of chains and collections, each made once, for all rule sets that share them."""

    def __init__(self) -> None:
        """Begin with none."""
        self.journal = Journal()
        # The value keeps the chain alive, so that no other gets its identity.
        self._chains: dict[int, tuple[Chain, IndexedChain]] = {}
        self._collections: dict[int, tuple[Collection, IndexedCollection]] = {}

    def of_chain(self, chain: Chain) -> "IndexedChain":
        """Return a chain's index."""
        found = self._chains.get(id(chain))
        if found is None:
            found = self._chains[id(chain)] = (chain, IndexedChain(chain, self.journal))
        return found[1]

    def of_collection(self, collection: Collection) -> "IndexedCollection":
        """Return a collection's index."""
        found = self._collections.get(id(collection))
        if found is None:
            found = self._collections[id(collection)] = (collection, IndexedCollection(collection, self.journal))
        return found[1]


class IndexedRule(NamedTuple):
    """A rule whose tests are in the order in which they are tried."""

    rule: Rule
    steps: tuple[Step, ...]
    first_action: int
    leads_to: str | None
    """The chain that it jumps to, where that is all it does."""


class Addressed(Protocol):
    """What is asked of a packet to find the rules for it."""

    destination: int
    protocol: int

    @property
    def ports(self) -> Ranges:
        """The ports that it may go to."""


class IndexedChain:
    """A chain's rules, and which of them a packet to some address can match."""

    def __init__(self, chain: Chain, journal: Journal) -> None:
        """Prepare a chain; ``journal`` is told where it says something of one address."""
        self._journal = journal
        self.name = chain.name
        # A rule without an action says nothing, whatever it looks at.
        self.rules = tuple(_indexed(rule) for rule in chain.rules if _acts(rule))
        self._to: dict[int, list[tuple[int, int | None, int | None]]] = {}
        self._anywhere: list[int] = []
        for number, rule in enumerate(self.rules):
            address = _only(rule.steps, Field.DESTINATION)
            if address is None:
                self._anywhere.append(number)
            else:
                about = _only(rule.steps, Field.PROTOCOL), _only(rule.steps, Field.DESTINATION_PORT)
                self._to.setdefault(address, []).append((number, *about))

    def concerning(self, packet: Addressed) -> list[int]:
        """Return the numbers of the rules that a packet can match, in order."""
        destination, protocol, ports = packet.destination, packet.protocol, packet.ports
        self._journal.note(InChain(self, protocol), destination, ports)
        found = self.particular(destination, protocol, ports)
        return sorted((*found, *self._anywhere)) if found else self._anywhere

    def particular(self, destination: int, protocol: int, ports: Ranges) -> list[int]:
        """Return those of them that are for no other destination."""
        return [
            number
            for number, about, port in self._to.get(destination, ())
            if about in (None, protocol) and (port is None or contains(ports, port))
        ]


class InChain(NamedTuple):
    """The question whether a chain has rules for a destination alone."""

    chain: IndexedChain
    protocol: int

    def answer(self, destination: int, ports: Ranges) -> bool | None:
        """Return False where it has none, and None where it has some."""
        return None if self.chain.particular(destination, self.protocol, ports) else False


def _acts(rule: Rule) -> bool:
    return any(isinstance(step, Action | Unknown) for step in rule.steps)


def _indexed(rule: Rule) -> IndexedRule:
    """Put what is unknown after the tests before the first action: where one of these fails, it does not matter."""
    steps = rule.steps
    tests = 0
    while tests < len(steps) and not isinstance(steps[tests], Action):
        tests += 1
    known = [step for step in steps[:tests] if not isinstance(step, Unknown)]
    # First what splits no class: it is quick, and fails nearly always.
    known.sort(key=_can_split)
    unknown = [step for step in steps[:tests] if isinstance(step, Unknown)]
    last = steps[-1]
    jumps = tests == len(steps) - 1 and isinstance(last, Verdict) and last.kind == "jump" and not unknown
    leads_to = last.chain if jumps and isinstance(last, Verdict) else None
    return IndexedRule(rule, (*known, *unknown, *steps[tests:]), len(known), leads_to)


def _can_split(step: Step) -> bool:
    if isinstance(step, Within):
        return step.field not in (Field.DESTINATION, Field.PROTOCOL, Field.ORIGINAL_DESTINATION)
    return not isinstance(step, Marked | Translated | AddressType | ThroughServer | Never)


def _only(steps: tuple[Step, ...], field: Field) -> int | None:
    """Return the one number of a field that a rule is about, or None where there are more."""
    for step in steps:
        if isinstance(step, Action):
            return None
        if isinstance(step, Within) and step.field is field and not step.inverted:
            number = only(step.ranges)
            if number is not None:
                return number
    return None


class IndexedCollection:
    """A set's or a map's elements, found by whichever parts of the key are known."""

    def __init__(self, collection: Collection, journal: Journal) -> None:
        """Prepare a collection; indexes are made when they are first needed."""
        self.journal = journal
        self.name = collection.name
        self.remembers = collection.remembers
        self.seconds = collection.seconds
        self._elements = collection.elements
        self._indexes: dict[tuple[int, ...], tuple[dict[tuple[int, ...], list[Element]], list[Element]]] = {}

    @property
    def elements(self) -> tuple[Element, ...]:
        """All elements."""
        return self._elements

    def matching(self, known: dict[int, int]) -> list[Element]:
        """Return the elements that have these numbers at these positions of their keys."""
        positions = tuple(known)
        index = self._indexes.get(positions)
        if index is None:
            index = self._indexes[positions] = self._indexed(positions)
        exact, ranged = index
        found = exact.get(tuple(known.values()), [])
        if not ranged:
            return found
        return [*found, *_inside(ranged, known)]

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


def _inside(ranged: list[Element], known: dict[int, int]) -> Iterator[Element]:
    for element in ranged:
        if all(covers(element.key[position], number) for position, number in known.items()):
            yield element


def covers(part: int | tuple[int, int], number: int) -> bool:
    """Tell whether a part of an element's key stands for a number."""
    return part == number if isinstance(part, int) else part[0] <= number <= part[1]


class InCollection(NamedTuple):
    """The question what a collection has for a destination.

    ``known`` are the other numbers of the key, ``position`` is where the destination is in it, and ``port`` where a
    port is that may be any of several.
    """

    collection: IndexedCollection
    known: tuple[tuple[int, int], ...]
    position: int
    port: int | None

    def answer(self, destination: int, ports: Ranges) -> bool | None:
        """Return whether the destination is in a set of addresses; None where more is said of it."""
        known = {position: destination if position == self.position else number for position, number in self.known}
        found = [element for element in self.collection.matching(known) if self._is_for(element, ports)]
        if not found:
            return False
        return True if all(len(element.key) == 1 and element.value is None for element in found) else None

    def _is_for(self, element: Element, ports: Ranges) -> bool:
        if self.port is None:
            return True
        part = element.key[self.port]
        return bool(common(ports, ((part, part) if isinstance(part, int) else part,)))
