"""Arranges a report for people: a summary, differences by cause, expected differences by reason."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.counts import format_count
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import MAX_EXAMPLES, DifferenceGroup, Example, Report, Result, UninterpretedRule
from knft.present.formatting import format_packet_kinds


class Cause(Struct, frozen=True):
    """The aspect in which outcomes differ; ``key`` is its name in the JSON format."""

    key: str
    title: str
    description: str


CAUSES = (
    Cause("verdict", "Different verdict", "served on one side, but rejected, dropped or not translated on the other"),
    Cause("reply", "Different rejection", "both sides reject, with different replies"),
    Cause("endpoints", "Different endpoints", "packets reach endpoints that the other side does not choose"),
    Cause("masquerade", "Different source address", "the same endpoints see another client address"),
    Cause("affinity", "Different session affinity", "clients keep their endpoint for a different time, or not at all"),
    Cause("shares", "Different shares", "the same endpoints are chosen with different probabilities"),
    Cause("scheduler", "Different scheduler", "IPVS does not choose among the same endpoints equally often"),
    Cause("mark", "Different mark", "one side overwrites bits of the packet's mark that other programs may use"),
)
"""In the order of the report's sections. Each group of differences has one cause (knft.interpret.compare.report)."""


class Summary(Struct, frozen=True):
    """The result, a headline for it, and the counts in words.

    ``is_loss`` tells whether some clients reach a Service on the left side alone, because of an expected difference.
    """

    result: Result
    headline: str
    detail: str
    is_loss: bool


class Row(Struct, frozen=True):
    """A group of differences, with its IP family."""

    family: str
    group: DifferenceGroup


class Section(Struct, frozen=True):
    """All unexpected differences with one cause."""

    cause: Cause
    rows: tuple[Row, ...]


class ExpectedDifferenceGroup(Struct, frozen=True):
    """All expected differences with one reason, in both families.

    ``services`` are the Service ports; ``""`` stands for packets to addresses that belong to no Service. ``is_loss``
    tells whether the left side serves packets that the right side does not serve; ``unreached`` are the Services of
    these packets.
    """

    reason: str
    description: str
    classes: int
    services: tuple[str, ...]
    examples: tuple[tuple[str, Example], ...]
    is_loss: bool
    unreached: tuple[str, ...]

    @property
    def where(self) -> str:
        """The number of Services, and whether packets to addresses of no Service differ, too."""
        services = {name.partition(":")[0] for name in self.services if name}
        parts = [format_count(len(services), "Service")] if services else []
        return " and ".join([*parts, *(["addresses of no Service"] if "" in self.services else [])])


class UninterpretedRow(Struct, frozen=True):
    """A rule that is not interpreted, with its IP family and the name of its side."""

    family: str
    side: str
    rule: UninterpretedRule


class Overview(Struct, frozen=True):
    """The contents of a report, in the order in which people read them."""

    summary: Summary
    totals: Counts
    sections: tuple[Section, ...]
    undecided: tuple[Row, ...]
    uninterpreted_rules: tuple[UninterpretedRow, ...]
    expected: tuple[ExpectedDifferenceGroup, ...]
    unreached: tuple[str, ...]
    """The Services that some clients reach on the left side alone, because of unexpected differences."""
    changed: tuple[str, ...]
    """The other Services with unexpected differences."""
    losing: tuple[str, ...]
    """The other Services that some clients reach on the left side alone, because of expected differences."""

    @property
    def differences(self) -> int:
        """The number of groups of unexpected differences."""
        return sum(len(section.rows) for section in self.sections)


def overview(report: Report) -> Overview:
    """Return a report arranged for people."""
    rows = sorted(_rows(report), key=_order)
    different = [row for row in rows if row.group.reason is None and row.group.cause != "undecided"]
    affected = _services(different)
    unreached = _services(row for row in different if row.group.is_loss)
    losing = _services(row for row in rows if row.group.reason is not None and row.group.is_loss)
    return Overview(
        _summary(report, affected, unreached, losing),
        report.totals,
        tuple(_sections(different)),
        tuple(row for row in rows if row.group.cause == "undecided"),
        tuple(_uninterpreted_rows(report)),
        tuple(_expected_differences([row for row in rows if row.group.reason is not None])),
        unreached,
        tuple(name for name in affected if name not in unreached),
        tuple(name for name in losing if name not in affected),
    )


def _services(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the names of the Services of rows, each once."""
    names = (row.group.service.partition(":")[0] for row in rows)
    return tuple(dict.fromkeys(name for name in names if name))


def _summary(report: Report, affected: tuple[str, ...], unreached: tuple[str, ...], losing: tuple[str, ...]) -> Summary:
    found, counts = report.result, report.totals
    exception = ", except for expected differences" if counts.expected else ""
    equal = f"Packets have the same outcome on both sides{exception}"
    if losing:
        services = format_count(len(losing), "Service")
        equal = f"No unexpected differences, but some clients would no longer reach {services}"
    headlines: dict[Result, str] = {
        "different": _difference_headline(affected, unreached),
        "undecided": "No difference was found, but the outcomes of some packets are undecided",
        "equal": equal,
        "nothing": f"Nothing was compared: {report.nothing_compared_reason}",
    }
    return Summary(found, headlines[found], ", ".join(_count_phrases(counts)), is_loss=bool(losing))


def _difference_headline(affected: tuple[str, ...], unreached: tuple[str, ...]) -> str:
    if not affected:
        return "Packets to addresses of no Service have different outcomes"
    headline = f"Clients would see a difference at {format_count(len(affected), 'Service')}"
    if not unreached:
        return headline
    those = f"{len(unreached)} of them" if len(affected) > 1 else "it"
    return f"{headline}, and some would no longer reach {those}"


def _count_phrases(counts: Counts) -> Iterator[str]:
    yield f"{format_packet_kinds(counts.different)} different"
    yield f"{counts.undecided} undecided"
    yield f"{counts.expected} with expected differences"
    yield f"{counts.equal} equal"


def _rows(report: Report) -> Iterator[Row]:
    for item in report.families:
        for group in item.groups:
            yield Row(item.family, group)


def _order(row: Row) -> tuple[bool, bool, tuple[str, ...], str, int, str]:
    """Order rows by Service port; Services that clients no longer reach come first, addresses of no Service last."""
    group = row.group
    name = group.service.partition(":")
    return not group.is_loss, not group.service, name, row.family, -group.classes, group.description


def _sections(rows: Iterable[Row]) -> Iterator[Section]:
    by_cause: dict[str, list[Row]] = {cause.key: [] for cause in CAUSES}
    for row in rows:
        by_cause.setdefault(row.group.cause, []).append(row)
    causes = {cause.key: cause for cause in CAUSES}
    for key, listed in by_cause.items():
        if listed:
            yield Section(causes.get(key, Cause(key, key.capitalize(), "")), tuple(listed))


def _uninterpreted_rows(report: Report) -> Iterator[UninterpretedRow]:
    for item in report.families:
        for rule in item.uninterpreted_rules:
            yield UninterpretedRow(item.family, report.left_label if rule.side == "left" else report.right_label, rule)


def _reason_order(item: tuple[tuple[str, str], list[Row]]) -> tuple[bool, tuple[str, str]]:
    """Order expected differences by reason; those by which clients no longer reach a Service come first."""
    names, rows = item
    return not any(row.group.is_loss for row in rows), names


def _expected_differences(rows: Iterable[Row]) -> Iterator[ExpectedDifferenceGroup]:
    """Yield expected differences by reason, with examples of different Service ports."""
    by_reason: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_reason.setdefault((row.group.reason or "", row.group.description), []).append(row)
    for (reason, sentence), listed in sorted(by_reason.items(), key=_reason_order):
        services = dict.fromkeys(row.group.service for row in listed)
        classes = sum(row.group.classes for row in listed)
        first_rows = {row.group.service: row for row in reversed(listed) if row.group.examples}
        examples = [(row.family, row.group.examples[0]) for row in reversed(first_rows.values())]
        losses = [row for row in listed if row.group.is_loss]
        yield ExpectedDifferenceGroup(
            reason,
            sentence,
            classes,
            tuple(services),
            tuple(examples[:MAX_EXAMPLES]),
            is_loss=bool(losses),
            unreached=_services(losses),
        )
