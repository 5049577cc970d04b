"""Evaluates whether a comparison finds a mutation and names its Service."""

from collections.abc import Iterator

from msgspec import Struct

from knft.comparison.compare import comparison_of
from knft.comparison.sides import Sides
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import DifferenceGroup, UninterpretedRule, summarise
from tests.mutation.operator import Expectation


class Evaluation(Struct, frozen=True):
    """The result of a comparison; ``sentences`` are its first unexpected differences."""

    is_found: bool
    is_named: bool
    sentences: tuple[str, ...] = ()


def evaluate(sides: Sides, expectation: Expectation) -> Evaluation:
    """Compare until the mutation is found and its Service named, or to the end."""
    sentences: dict[str, None] = {}
    for group, unread in unexpected_differences(sides):
        if len(sentences) < 3:
            sentences[f"{group.cause} {group.service}: {group.description}"] = None
        if _is_named(group.service, expectation) and _is_rule_named(unread, expectation):
            return Evaluation(is_found=True, is_named=True, sentences=tuple(sentences))
    return Evaluation(is_found=bool(sentences), is_named=False, sentences=tuple(sentences))


def unexpected_differences(sides: Sides) -> Iterator[tuple[DifferenceGroup, list[UninterpretedRule]]]:
    """Yield unexpected differences one by one, each as a group of a report."""
    (version,) = sides.left
    comparison, names = comparison_of(version, sides)
    for difference in comparison.differences():
        found = summarise(version, Counts(), [difference], names)
        (group,) = found.groups
        if group.reason is None:
            yield group, found.uninterpreted_rules


def _is_named(service: str, expectation: Expectation) -> bool:
    """Tell whether a difference is at one of the expected Service ports, or at its Service."""
    if not expectation.service_ports:
        return True
    return service in expectation.service_ports or service in {
        name.partition(":")[0] for name in expectation.service_ports
    }


def _is_rule_named(unread: list[UninterpretedRule], expectation: Expectation) -> bool:
    """Tell whether the report names the uninterpreted rule; nft listings have no lines, so any rule counts."""
    return not expectation.line or any(rule.line == max(expectation.line, 0) and rule.text for rule in unread)
