"""The format for a terminal: the summary first, then tables."""

from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from knft.interpret.compare.deciding_rules import format_decision
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import DifferenceGroup, Example, Report, Result
from knft.present.formatting import escape_invisible
from knft.present.overview import ExpectedDifferenceGroup, Overview, Row, Section, overview

_UNLIMITED = 1_000_000
"""A width that no line reaches: tables are as wide as their contents."""

_COLOURS: dict[Result, str] = {"equal": "green", "different": "red", "undecided": "yellow", "nothing": "yellow"}


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return a report as text; lines fold at ``width``, or never without one.

    Nothing is truncated. Without colours the text has no escape sequences, whatever the environment variables are.
    """
    out = Console(
        file=StringIO(),
        width=width or _UNLIMITED,
        force_terminal=colours,
        color_system="standard" if colours else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    found = overview(report)
    with out.capture() as captured:
        _print_summary(out, report, found)
        _print_differences(out, report, found)
        _print_undecided(out, found)
        _print_expected(out, found.expected)
        _print_counts(out, report)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _print_summary(out: Console, report: Report, found: Overview) -> None:
    out.print(Text(escape_invisible(found.summary.headline), f"bold {_COLOURS[found.summary.result]}"))
    out.print(Text(found.summary.detail))
    out.print()
    metadata = report.metadata
    grid = _grid()
    for name, values in (
        ("left", (report.left_name, *metadata.left_files)),
        ("right", (report.right_name, *metadata.right_files)),
        ("node", (metadata.node, *metadata.addresses)),
        ("date", (metadata.date,)),
        ("command", (metadata.command,)),
    ):
        text = ", ".join(value for value in values if value)
        if text:
            grid.add_row(Text(name, "dim"), Text(escape_invisible(text)))
    for warning in report.warnings:
        grid.add_row(Text("warning", "yellow"), Text(escape_invisible(warning)))
    out.print(grid)


def _print_differences(out: Console, report: Report, found: Overview) -> None:
    for section in found.sections:
        _print_title(out, f"{section.cause.title} ({len(section.rows)})", section.cause.description)
        out.print(_difference_table(out, report, section))


def _difference_table(out: Console, report: Report, section: Section) -> Table:
    rows = _table("Service", "Family", "Classes", "Side", "Outcome")
    for row in section.rows:
        _add_group(out, rows, row, [*_side_lines(report, row.group), *_example_lines(row.group.examples)])
    return rows


def _print_undecided(out: Console, found: Overview) -> None:
    if found.undecided:
        _print_title(
            out, f"Undecided ({len(found.undecided)})", "these packets reach a rule that knft cannot interpret"
        )
        rows = _table("Service", "Family", "Classes", "Side", "Outcome")
        for row in found.undecided:
            _add_group(out, rows, row, list(_example_lines(row.group.examples)))
        out.print(rows)
    if found.uninterpreted_rules:
        _print_title(out, f"Rules that are not interpreted ({len(found.uninterpreted_rules)})")
        rules = _table("Side", "Family", "Line", "Chain", "Rule")
        for item in found.uninterpreted_rules:
            line = str(item.rule.line or "")
            chain, text = escape_invisible(item.rule.chain), escape_invisible(item.rule.text)
            rules.add_row(Text(escape_invisible(item.side)), item.family, line, Text(chain), Text(text))
        out.print(rules)


def _print_expected(out: Console, found: tuple[ExpectedDifferenceGroup, ...]) -> None:
    if not found:
        return
    _print_title(out, "Expected differences", "these differences do not change the exit status")
    rows = _table("Difference", "Where", "Classes", "What kube-proxy does")
    for item in found:
        rows.add_row(
            Text(escape_invisible(item.reason)), item.where, str(item.classes), Text(escape_invisible(item.description))
        )
    out.print(rows)


def _print_counts(out: Console, report: Report) -> None:
    _print_title(out, "Packet classes", "two packets are in one class if no rule on either side tells them apart")
    rows = _table("Family", "Equal", "Expected", "Different", "Undecided", all_numbers=True)
    for item in report.families:
        rows.add_row(item.family, *_count_cells(item.counts))
    out.print(rows)


def _count_cells(counts: Counts) -> list[str]:
    return [str(count) for count in (counts.equal, counts.expected, counts.different, counts.undecided)]


def _print_title(out: Console, title: str, description: str = "") -> None:
    out.print()
    out.print(
        Text.assemble((escape_invisible(title), "bold"), f": {escape_invisible(description)}" if description else "")
    )


def _table(*columns: str, all_numbers: bool = False) -> Table:
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        is_number = name in ("Classes", "Line") or (all_numbers and number > 0)
        found.add_column(name, justify="right" if is_number else "left", overflow="fold")
    return found


def _add_group(out: Console, rows: Table, row: Row, lines: list[tuple[Text, Text]]) -> None:
    """Add a group; its Service, family and count are in the row of the first line."""
    name = Text(escape_invisible(row.group.service) or "addresses of no Service", "" if row.group.service else "dim")
    first: list[RenderableType] = [name, row.family, str(row.group.classes)]
    if out.width == _UNLIMITED:
        # Lines do not fold, so one row can hold all of them: rich takes a third of the time of three rows.
        lines = [(Text("\n").join(label for label, _ in lines), Text("\n").join(text for _, text in lines))]
    for label, text in lines:
        rows.add_row(*first, label, text)
        first = ["", "", ""]


def _side_lines(report: Report, group: DifferenceGroup) -> Iterator[tuple[Text, Text]]:
    """Yield labels and lines: the outcome on each side, and the rule that decides it for the first example."""
    first = next(iter(group.examples), None)
    decisions = (None, None) if first is None else (first.left_decision, first.right_decision)
    names, outcomes = (report.left_name, report.right_name), (group.left_outcome, group.right_outcome)
    for name, outcome, decision in zip(names, outcomes, decisions, strict=True):
        yield Text(escape_invisible(name), "cyan"), Text(escape_invisible(outcome))
        if decision is not None:
            yield Text("decided by", "dim"), Text(escape_invisible(format_decision(decision)), "dim")


def _example_lines(examples: list[Example]) -> Iterator[tuple[Text, Text]]:
    """Yield the label and the line of the first example."""
    for example in examples[:1]:
        known = "" if example.client == "new" else f", a client that {example.client}"
        text = f"{example.sender} to {example.destination}{known}"
        yield Text("example", "dim"), Text(escape_invisible(text), "dim")


def _grid() -> Table:
    found = Table.grid(padding=(0, 2, 0, 0))
    found.add_column()
    found.add_column(overflow="fold")
    return found
