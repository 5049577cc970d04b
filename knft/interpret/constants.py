"""What rule sets tell packets apart by: the addresses, protocols and interfaces that they mention."""

from collections.abc import Iterable, Iterator

from knft.interpret.ranges import Ranges, only, ranges
from knft.interpret.rules import (
    Choose,
    Collection,
    Field,
    InSet,
    Interface,
    Remember,
    Rule,
    RuleSet,
    Step,
    TranslateBy,
    Within,
)


class Constants:
    """All that some rule sets mention of one field or another."""

    def __init__(self, rule_sets: Iterable[RuleSet]) -> None:
        """Go through every rule and every element once."""
        self._found: dict[Field, set[tuple[int, int]]] = {field: set() for field in Field}
        self.interfaces: set[str] = set()
        self._ports: set[tuple[int, int]] = set()
        self.exceptions: set[int] = set()
        """Destinations that a rule mentions in another way than as the only ones that it is about."""
        for rules in rule_sets:
            for server in rules.servers:
                self._found[Field.DESTINATION].add((server.address, server.address))
                self._found[Field.PROTOCOL].add((server.protocol, server.protocol))
            looked_up: dict[str, set[tuple[int, Field]]] = {}
            for rule in _rules(rules):
                for step in rule.steps:
                    self._note(step, looked_up)
                self._note_ports(rule, rules)
            for name, positions in looked_up.items():
                self._note_elements(rules.collections[name], positions)

    def destinations(self) -> set[tuple[int, int]]:
        """Return the ranges of destinations, those of the whole connection among them."""
        return self._found[Field.DESTINATION] | self._found[Field.ORIGINAL_DESTINATION]

    @property
    def tests_originals(self) -> bool:
        """Whether a rule looks at where a connection went before it was translated."""
        return bool(self._found[Field.ORIGINAL_DESTINATION] or self._found[Field.ORIGINAL_PORT])

    def ports(self) -> Ranges:
        """Return the destination ports that are mentioned without one destination."""
        return ranges(self._ports)

    def sources(self) -> set[tuple[int, int]]:
        """Return the ranges of sources, likewise."""
        return self._found[Field.SOURCE] | self._found[Field.ORIGINAL_SOURCE]

    def protocols(self) -> set[int]:
        """Return the protocols that are mentioned one by one."""
        return {first for first, last in self._found[Field.PROTOCOL] if first == last}

    def _note(self, step: Step, looked_up: dict[str, set[tuple[int, Field]]]) -> None:
        if isinstance(step, Within):
            self._found[step.field].update(step.ranges)
            if step.field is Field.DESTINATION and (step.inverted or len(step.ranges) > 1):
                self.exceptions.update(singles(step.ranges))
        elif isinstance(step, Interface):
            self.interfaces.update(step.names)
        elif isinstance(step, InSet | Choose | TranslateBy | Remember):
            positions = looked_up.setdefault(step.collection, set())
            positions.update((number, part) for number, part in enumerate(step.key) if isinstance(part, Field))

    def _note_ports(self, rule: Rule, rules: RuleSet) -> None:
        if _is_about_one(rule):
            return
        for step in rule.steps:
            if isinstance(step, Within) and step.field is Field.DESTINATION_PORT:
                self._ports.update(step.ranges)
            elif isinstance(step, InSet | Choose | TranslateBy) and Field.DESTINATION not in step.key:
                for position, part in enumerate(step.key):
                    if part is Field.DESTINATION_PORT:
                        parts = (element.key[position] for element in rules.collections[step.collection].elements)
                        self._ports.update((item, item) if isinstance(item, int) else item for item in parts)

    def _note_elements(self, collection: Collection, positions: set[tuple[int, Field]]) -> None:
        for position, field in positions:
            found = self._found[field]
            for element in collection.elements:
                part = element.key[position]
                found.add((part, part) if isinstance(part, int) else part)


def _rules(rules: RuleSet) -> Iterator[Rule]:
    for chain in rules.chains.values():
        yield from chain.rules


def _is_about_one(rule: Rule) -> bool:
    """Tell whether a rule is about one destination."""
    tests = (step for step in rule.steps if isinstance(step, Within) and step.field is Field.DESTINATION)
    return any(not test.inverted and only(test.ranges) is not None for test in tests)


def singles(pairs: Iterable[tuple[int, int]]) -> set[int]:
    """Return those of the ranges that are one address."""
    return {first for first, last in pairs if first == last}


def wide(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the others, sorted."""
    return sorted(pair for pair in pairs if pair[0] != pair[1])
