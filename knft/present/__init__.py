"""Shows what a comparison has found: ``table`` in a terminal, ``json`` to programs, ``html`` in a browser.

A Report in, a string out. It writes no file, reads no clock, and decides nothing about packets: what it shows is in the
report. Names of Services and texts of rules are others' words: no form lets them become markup or control a terminal.
Who asks for one form loads no library of the others.
"""

from knft.interpret.compare.report import Report


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return a report as tables: folded to a terminal's width, or in whole lines, plain, where there is none."""
    from knft.present.text import table as form  # noqa: PLC0415 - loads rich

    return form(report, width=width, colours=colours)


def json(report: Report) -> str:
    """Return a report as JSON text; ``document`` says what is in it."""
    from knft.present.document import json as form  # noqa: PLC0415

    return form(report)


def html(report: Report) -> str:
    """Return a report as one page that loads nothing."""
    from knft.present.page import html as form  # noqa: PLC0415 - loads Jinja2

    return form(report)
