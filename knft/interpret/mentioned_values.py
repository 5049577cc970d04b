"""Collects the addresses, ports, protocols and interfaces that rule sets mention.

Packets that differ only in values that no rule mentions get the same outcome, so these values delimit packet classes.
"""

from collections.abc import Iterable, Iterator

from knft.interpret.ranges import Ranges, ranges, sole_value
from knft.interpret.rules import (
    AddToSet,
    Collection,
    DnatMapLookup,
    Field,
    InSet,
    Interface,
    LookUpPriority,
    Rule,
    RuleSet,
    Step,
    VmapLookup,
    Within,
)


class MentionedValues:
    """The values that rule sets mention, by field."""

    def __init__(self, rule_sets: Iterable[RuleSet]) -> None:
        """Collect the values of all rules and of the collections that they look up."""
        self._rule_sets = tuple(rule_sets)
        self._ranges: dict[Field, set[tuple[int, int]]] = {field: set() for field in Field}
        self.interfaces: set[str] = set()
        self.destinations_of_multi_range_tests: set[int] = set()
        """Destinations in an inverted test, or in a test that lists several ranges."""
        for rules in self._rule_sets:
            for server in rules.servers:
                self._ranges[Field.DESTINATION].add((server.address, server.address))
                self._ranges[Field.PROTOCOL].add((server.protocol, server.protocol))
            lookups: dict[str, set[tuple[int, Field]]] = {}
            for rule in _all_rules(rules):
                for step in rule.steps:
                    self._add_step(step, lookups)
            for name, positions in lookups.items():
                self._add_elements(rules.collections[name], positions)

    def destinations(self) -> set[tuple[int, int]]:
        """Return the ranges of destinations, including those of original destinations."""
        return self._ranges[Field.DESTINATION] | self._ranges[Field.ORIGINAL_DESTINATION]

    @property
    def matches_original_destination(self) -> bool:
        """Whether a rule matches the destination that a connection had before translation."""
        return bool(self._ranges[Field.ORIGINAL_DESTINATION] or self._ranges[Field.ORIGINAL_PORT])

    def ports(self) -> Ranges:
        """Return the destination ports of rules that apply to more than one destination."""
        return ranges({pair for rules in self._rule_sets for rule in _all_rules(rules) for pair in _ports(rule, rules)})

    def sources(self) -> set[tuple[int, int]]:
        """Return the ranges of sources, including those of original sources."""
        return self._ranges[Field.SOURCE] | self._ranges[Field.ORIGINAL_SOURCE]

    def protocols(self) -> set[int]:
        """Return the protocols that are mentioned by number rather than in a range."""
        return {first for first, last in self._ranges[Field.PROTOCOL] if first == last}

    def _add_step(self, step: Step, lookups: dict[str, set[tuple[int, Field]]]) -> None:
        if isinstance(step, Within):
            self._ranges[step.field].update(step.ranges)
            if step.field is Field.DESTINATION and (step.inverted or len(step.ranges) > 1):
                self.destinations_of_multi_range_tests.update(single_addresses(step.ranges))
        elif isinstance(step, Interface):
            self.interfaces.update(step.names)
        elif isinstance(step, InSet | LookUpPriority | VmapLookup | DnatMapLookup | AddToSet):
            positions = lookups.setdefault(step.collection, set())
            positions.update((number, part) for number, part in enumerate(step.key) if isinstance(part, Field))

    def _add_elements(self, collection: Collection, positions: set[tuple[int, Field]]) -> None:
        for position, field in positions:
            found = self._ranges[field]
            for element in collection.elements:
                part = element.key[position]
                found.add((part, part) if isinstance(part, int) else part)


def _all_rules(rules: RuleSet) -> Iterator[Rule]:
    for chain in rules.chains.values():
        yield from chain.rules


def _ports(rule: Rule, rules: RuleSet) -> Iterator[tuple[int, int]]:
    """Yield the destination ports that a rule mentions, unless it applies to one destination only."""
    if _has_single_destination(rule):
        return
    for step in rule.steps:
        if isinstance(step, Within) and step.field is Field.DESTINATION_PORT:
            yield from step.ranges
        elif (
            isinstance(step, InSet | LookUpPriority | VmapLookup | DnatMapLookup) and Field.DESTINATION not in step.key
        ):
            for position, part in enumerate(step.key):
                if part is Field.DESTINATION_PORT:
                    parts = (element.key[position] for element in rules.collections[step.collection].elements)
                    yield from ((item, item) if isinstance(item, int) else item for item in parts)


def _has_single_destination(rule: Rule) -> bool:
    """Return whether a rule matches exactly one destination."""
    tests = (step for step in rule.steps if isinstance(step, Within) and step.field is Field.DESTINATION)
    return any(not test.inverted and sole_value(test.ranges) is not None for test in tests)


def single_addresses(pairs: Iterable[tuple[int, int]]) -> set[int]:
    """Return the addresses of the ranges that contain one address each."""
    return {first for first, last in pairs if first == last}


def address_blocks(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of more than one address, sorted."""
    return sorted(pair for pair in pairs if pair[0] != pair[1])
