"""The format for a terminal: the summary first, then one block for each group of differences."""

from collections.abc import Iterable, Iterator

from knft.interpret.compare.deciding_rules import format_decision
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import DifferenceGroup, Example, Report, Result
from knft.present.formatting import escape_invisible, format_packet_kinds
from knft.present.layout import Layout, columns_of
from knft.present.overview import ExpectedDifferenceGroup, Overview, Row, Section, overview

_COLOURS: dict[Result, str] = {"equal": "green", "different": "red", "undecided": "yellow", "nothing": "yellow"}
_LABEL_COLOURS = {"warning": "yellow", "no longer reached": "red"}
_GAP = 2
_MAX_NAMES = 10
"""Maximum number of Services in a list; the differences below the summary name all."""


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return a report as text; lines wrap at ``width``, or never without one.

    No difference is omitted, and no line truncated. Without colours the text has no escape sequences, whatever the
    environment variables are.
    """
    out = Layout(width, colours=colours)
    found = overview(report)
    _print_summary(out, report, found)
    _print_differences(out, report, found)
    _print_undecided(out, found)
    _print_expected(out, found.expected)
    _print_counts(out, report)
    return out.text


def _print_summary(out: Layout, report: Report, found: Overview) -> None:
    result = found.summary.result
    colour = "yellow" if result == "equal" and found.summary.is_loss else _COLOURS[result]
    out.line(escape_invisible(found.summary.headline), f"bold {colour}")
    out.line(found.summary.detail)
    out.line()
    metadata = report.metadata
    lines = [
        ("no longer reached", (_some_names(found.unreached),)),
        ("other differences" if found.unreached else "differences", (_some_names(found.changed),)),
        *(("warning", (warning,)) for warning in report.warnings),
        (report.left_label, (report.left_name, *metadata.left_files)),
        (report.right_label, (report.right_name, *metadata.right_files)),
        ("node", (metadata.node, *metadata.addresses)),
        ("date", (metadata.date,)),
        ("command", (metadata.command,)),
    ]
    room = max(columns_of(escape_invisible(label)) for label, _ in lines) + _GAP
    for label, values in lines:
        text = ", ".join(value for value in values if value and value != label)
        if text:
            styles = (_LABEL_COLOURS.get(label, "dim"), "")
            out.labelled(escape_invisible(label), escape_invisible(text), room=room, styles=styles)


def _some_names(names: tuple[str, ...]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _print_differences(out: Layout, report: Report, found: Overview) -> None:
    for section in found.sections:
        _print_title(out, f"{section.cause.title} ({len(section.rows)})", section.cause.description)
        _print_section(out, report, section)


def _print_section(out: Layout, report: Report, section: Section) -> None:
    labels = (report.left_label, report.right_label, "decided by", "example")
    room = max(columns_of(escape_invisible(label)) for label in labels) + _GAP
    for row in section.rows:
        _print_row(out, row, [*_side_lines(report, row.group), *_example_lines(row.group.examples)], room)


def _print_row(out: Layout, row: Row, lines: Iterable[tuple[str, str, str]], room: int) -> None:
    """Print a group: its Service, family and count, and then labelled lines, each with a style."""
    out.line()
    name = escape_invisible(row.group.service) or "addresses of no Service"
    title = f"{name}  {row.family}, {format_packet_kinds(row.group.classes)}"
    if row.group.is_loss:
        out.line(f"{title}, no longer reached", "bold red", indent=2)
    else:
        out.line(title, "bold", indent=2)
    for label, text, style in lines:
        styles = ("dim" if style == "dim" else "cyan", style)
        out.labelled(escape_invisible(label), escape_invisible(text), indent=4, room=room, styles=styles)


def _side_lines(report: Report, group: DifferenceGroup) -> Iterator[tuple[str, str, str]]:
    """Yield the outcome on each side, and the rule that decides it for the first example."""
    first = next(iter(group.examples), None)
    decisions = (None, None) if first is None else (first.left_decision, first.right_decision)
    labels, outcomes = (report.left_label, report.right_label), (group.left_outcome, group.right_outcome)
    for label, outcome, decision in zip(labels, outcomes, decisions, strict=True):
        yield label, outcome, ""
        if decision is not None:
            yield "decided by", format_decision(decision), "dim"


def _example_lines(examples: list[Example]) -> Iterator[tuple[str, str, str]]:
    """Yield the first example, as flags of ``knft trace``."""
    for example in examples[:1]:
        yield "example", example.trace_command, "dim"


def _print_undecided(out: Layout, found: Overview) -> None:
    if found.undecided:
        _print_title(
            out, f"Undecided ({len(found.undecided)})", "these packets reach a rule that knft cannot interpret"
        )
        for row in found.undecided:
            _print_row(out, row, _example_lines(row.group.examples), len("example") + _GAP)
    if found.uninterpreted_rules:
        _print_title(out, f"Rules that are not interpreted ({len(found.uninterpreted_rules)})")
        out.line()
        for item in found.uninterpreted_rules:
            line = f", line {item.rule.line}" if item.rule.line else ""
            place = f"{escape_invisible(item.side)}, {item.family}{line}, chain {escape_invisible(item.rule.chain)}:"
            out.line(f"{place} {escape_invisible(item.rule.text)}", indent=2)


def _print_expected(out: Layout, found: tuple[ExpectedDifferenceGroup, ...]) -> None:
    if not found:
        return
    _print_title(out, "Expected differences", "these differences do not change the exit status")
    for item in found:
        out.line()
        style = "bold yellow" if item.is_loss else "bold"
        out.line(f"{escape_invisible(item.reason)}  {item.where}, {format_packet_kinds(item.classes)}", style, indent=2)
        out.line(f"with kube-proxy, {escape_invisible(item.description)}", indent=4)
        if item.is_loss:
            names = _some_names(item.unreached) or "addresses of no Service"
            out.line(f"some clients would no longer reach {escape_invisible(names)}", "yellow", indent=4)


def _print_counts(out: Layout, report: Report) -> None:
    _print_title(out, "Kinds of packets", "two packets are of one kind if no rule on either side tells them apart")
    rows = [[item.family, *_count_cells(item.counts)] for item in report.families]
    out.table(("Family", "Equal", "Expected", "Different", "Undecided"), rows)


def _count_cells(counts: Counts) -> list[str]:
    return [str(count) for count in (counts.equal, counts.expected, counts.different, counts.undecided)]


def _print_title(out: Layout, title: str, description: str = "") -> None:
    out.line()
    out.line(
        f"{escape_invisible(title)}: {escape_invisible(description)}" if description else escape_invisible(title),
        "bold",
    )
