"""Formats the result of ``knft preflight`` as text: the verdict first, then a block for each point, the worst first."""

from collections.abc import Iterator

from knft.cli.text_layout import Layout
from knft.preflight.report import STATES, Finding, Preflight, State, Verdict

_INDENT = 2
_LABEL = len("not checked")
_COLOURS: dict[str, str] = {"problem": "red", "warning": "yellow", "not checked": "yellow", "ok": "green"}
_VERDICT_COLOURS: dict[Verdict, str] = {"ready": "green", "not ready": "red", "undecided": "yellow"}


def format_preflight(found: Preflight, width: int | None, *, colours: bool = False) -> str:
    """Return the result as lines, folded at ``width``; None: not folded."""
    layout = Layout(width, colours=colours)
    layout.paragraph(found.summary, style=f"bold {_VERDICT_COLOURS[found.verdict]}")
    for point in sorted(found.points, key=lambda point: STATES.index(point.state)):
        layout.blank()
        layout.paragraph(f"{point.name}: {point.state}", style=f"bold {_COLOURS[point.state]}")
        lines = (line for finding in point.findings for line in _lines(finding, point.state))
        layout.pairs(lines, _INDENT, _COLOURS)
    return layout.text()


def _lines(finding: Finding, state: State) -> Iterator[tuple[str, str]]:
    """Yield a finding and its remedy; a point that was not checked has this in its heading, and the reasons below."""
    label = "reason" if finding.state == state == "not checked" else finding.state
    yield label.ljust(_LABEL), finding.text
    if finding.remedy:
        yield "remedy", finding.remedy
