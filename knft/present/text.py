"""The form for a terminal: the answer first, then tables."""

from collections.abc import Iterable
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import Example, Report
from knft.present.overview import Intended, Kind, Overview, Row, Section, overview
from knft.present.wording import visible

_UNBOUNDED = 1_000_000
"""A width that no line reaches: tables are as wide as what is in them."""

_COLOURS: dict[Kind, str] = {"equal": "green", "different": "red", "undecided": "yellow", "nothing": "yellow"}


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return a report as text: folded to a terminal's width, or in whole lines where there is none.

    Nothing is ever cut off. Without colours the text is plain, and the same whatever the environment says.
    """
    out = Console(
        file=StringIO(),
        width=width or _UNBOUNDED,
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
        _head(out, report, found)
        _differences(out, report, found)
        _undecided(out, found)
        _intended(out, found.intended)
        _counts(out, report)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _head(out: Console, report: Report, found: Overview) -> None:
    out.print(Text(visible(found.verdict.headline), f"bold {_COLOURS[found.verdict.kind]}"))
    out.print(Text(found.verdict.detail))
    out.print()
    about = report.about
    facts = _grid()
    for name, values in (
        ("left", (report.left, *about.left)),
        ("right", (report.right, *about.right)),
        ("node", (about.node, *about.addresses)),
        ("date", (about.date,)),
        ("command", (about.command,)),
    ):
        said = ", ".join(value for value in values if value)
        if said:
            facts.add_row(Text(name, "dim"), Text(visible(said)))
    for remark in report.remarks:
        facts.add_row(Text("remark", "yellow"), Text(visible(remark)))
    out.print(facts)


def _differences(out: Console, report: Report, found: Overview) -> None:
    for section in found.sections:
        _title(out, f"{section.cause.title} ({len(section.rows)})", section.cause.what)
        out.print(_section(out, report, section))


def _section(out: Console, report: Report, section: Section) -> Table:
    rows = _table("Service", "Family", "Classes", "", "What a client sees")
    for row in section.rows:
        sides = (report.left, row.group.left), (report.right, row.group.right)
        _add(out, rows, row, _seen(sides, row.group.examples))
    return rows


def _undecided(out: Console, found: Overview) -> None:
    if found.undecided:
        _title(out, f"Undecided ({len(found.undecided)})", "rules that are not interpreted decide on these packets")
        rows = _table("Service", "Family", "Classes", "", "")
        for row in found.undecided:
            _add(out, rows, row, _seen((), row.group.examples))
        out.print(rows)
    if found.doubts:
        _title(out, f"Rules that are not interpreted ({len(found.doubts)})")
        rules = _table("Side", "Family", "Line", "Chain", "Rule")
        for doubt in found.doubts:
            line = str(doubt.rule.line or "")
            chain, said = visible(doubt.rule.chain), visible(doubt.rule.text)
            rules.add_row(Text(visible(doubt.side)), doubt.family, line, Text(chain), Text(said))
        out.print(rules)


def _intended(out: Console, found: tuple[Intended, ...]) -> None:
    if not found:
        return
    _title(out, "By intent", "differences of the two modes that are meant")
    rows = _table("Reason", "Where", "Classes", "What differs")
    for item in found:
        rows.add_row(Text(visible(item.reason)), item.where, str(item.classes), Text(visible(item.sentence)))
    out.print(rows)


def _counts(out: Console, report: Report) -> None:
    _title(out, "Classes of packets")
    rows = _table("", "Equal", "By intent", "Different", "Undecided", figures=True)
    for item in report.families:
        rows.add_row(item.family, *_figures(item.counts))
    out.print(rows)


def _figures(counts: Counts) -> list[str]:
    return [str(count) for count in (counts.equal, counts.by_intent, counts.different, counts.undecided)]


def _title(out: Console, title: str, what: str = "") -> None:
    out.print()
    out.print(Text.assemble((visible(title), "bold"), f": {visible(what)}" if what else ""))


def _table(*columns: str, figures: bool = False) -> Table:
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        is_figure = name in ("Classes", "Line") or (figures and number > 0)
        found.add_column(name, justify="right" if is_figure else "left", overflow="fold")
    return found


def _add(out: Console, rows: Table, row: Row, seen: list[tuple[Text, Text]]) -> None:
    """Add a group: its name and count beside the first line of what is seen."""
    name = Text(visible(row.group.service) or "no Service's packets", "" if row.group.service else "dim")
    first: list[RenderableType] = [name, row.family, str(row.group.classes)]
    if out.width == _UNBOUNDED:
        # Nothing is folded, so that lines stay side by side: one row takes a third of the time of three.
        seen = [(Text("\n").join(label for label, _ in seen), Text("\n").join(said for _, said in seen))]
    for label, said in seen:
        rows.add_row(*first, label, said)
        first = ["", "", ""]


def _seen(sides: Iterable[tuple[str, str]], examples: list[Example]) -> list[tuple[Text, Text]]:
    """Return lines, each with its label: what is seen on either side, and the first example."""
    found = [(Text(visible(name), "cyan"), Text(visible(said))) for name, said in sides]
    for example in examples[:1]:
        known = "" if example.client == "new" else f", a client that {example.client}"
        said = f"{example.sender} to {example.destination}{known}"
        found.append((Text("example", "dim"), Text(visible(said), "dim")))
    return found


def _grid() -> Table:
    found = Table.grid(padding=(0, 2, 0, 0))
    found.add_column()
    found.add_column(overflow="fold")
    return found
