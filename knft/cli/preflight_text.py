"""Formats the result of ``knft preflight`` as text: the verdict first, then a block for each point."""

from collections.abc import Iterator

from knft.cli.text_layout import Layout
from knft.preflight.report import Finding, Preflight

_INDENT = 2
_LABEL = len("not checked")


def format_preflight(found: Preflight, width: int | None) -> str:
    """Return the result as lines, folded at ``width``; None: not folded."""
    layout = Layout(width)
    layout.paragraph(found.summary)
    for point in found.points:
        layout.blank()
        layout.paragraph(f"{point.name}: {point.state}")
        layout.pairs((line for finding in point.findings for line in _lines(finding)), _INDENT)
    return layout.text()


def _lines(finding: Finding) -> Iterator[tuple[str, str]]:
    yield finding.state.ljust(_LABEL), finding.text
    if finding.remedy:
        yield "remedy", finding.remedy
