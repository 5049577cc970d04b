"""Whether a comparison finds what a mutation did, and names the Service that it happened to."""

from collections.abc import Iterator

from msgspec import Struct

from knft.cli.diff import Sides, comparison_of
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import Group, Unread, summarise
from tests.interpret.mutation.operator import Touched


class Judged(Struct, frozen=True):
    """What came of a comparison; ``said`` are the first sentences that no intended difference accounts for."""

    found: bool
    named: bool
    said: tuple[str, ...] = ()


def judged(sides: Sides, touched: Touched) -> Judged:
    """Compare until the mutation is found and named, or to the end."""
    said: dict[str, None] = {}
    for group, unread in unexplained(sides):
        if len(said) < 3:
            said[f"{group.cause} {group.service}: {group.sentence}"] = None
        if _is_named(group.service, touched) and _is_read(unread, touched):
            return Judged(found=True, named=True, said=tuple(said))
    return Judged(found=bool(said), named=False, said=tuple(said))


def unexplained(sides: Sides) -> Iterator[tuple[Group, list[Unread]]]:
    """Yield all differences that are not by intent, each as the report has it, as they are found."""
    (version,) = sides.kube_proxy
    comparison, names = comparison_of(version, sides)
    for difference in comparison.differences():
        found = summarise(version, Counts(), [difference], names)
        (group,) = found.groups
        if group.intent is None:
            yield group, found.unread


def _is_named(service: str, touched: Touched) -> bool:
    """Tell whether a Service port is one of those touched, or their Service."""
    if not touched.services:
        return True
    return service in touched.services or service in {name.partition(":")[0] for name in touched.services}


def _is_read(unread: list[Unread], touched: Touched) -> bool:
    """Tell whether the rule that nobody can interpret is named; nft has no lines, and says the rule itself."""
    return not touched.line or any(rule.line == max(touched.line, 0) and rule.text for rule in unread)
