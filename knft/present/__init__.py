"""Formats the report of a comparison: ``table`` for a terminal, ``json`` for programs, ``html`` for a browser.

Takes a Report and returns a string. It writes no file and does not read the time: the report contains all data.
Names of Services and texts of rules are untrusted: no format lets them become markup or control a terminal. Each format
loads only the libraries that it needs.
"""

from knft.interpret.compare.report import Report


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return a report as text; lines wrap at ``width``, or never without one."""
    from knft.present.text import table as render  # noqa: PLC0415

    return render(report, width=width, colours=colours)


def json(report: Report) -> str:
    """Return a report as JSON text; ``knft.present.document`` describes it."""
    from knft.present.document import json as render  # noqa: PLC0415

    return render(report)


def html(report: Report) -> str:
    """Return a report as one HTML page that loads nothing."""
    from knft.present.page import html as render  # noqa: PLC0415 - loads Jinja2

    return render(report)
