"""The format to attach to a change request: one HTML page that loads no other file."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from knft.counts import format_count, format_number
from knft.interpret.compare.deciding_rules import format_decision
from knft.interpret.compare.report import DifferenceGroup, Example, ObservedOutcome, Report
from knft.present.formatting import escape_invisible, truncated
from knft.present.highlight import highlighted
from knft.present.overview import Cause, Overview, Row, overview

MAX_ROWS = 5_000
"""The most groups of differences, and the most uninterpreted rules, on a page; a browser stays fast with these."""

MAX_RULES_SIZE = 1_500_000
"""The most characters of rules on a page; mail systems accept a few MiB."""

MAX_SERVICES = 200
"""Maximum number of Services that are named in one list."""

MAX_AFFECTED = 8
"""Maximum number of Services that a list at the top of the page shows before it is opened."""

MAX_TEXT_LENGTH = 2_000
"""Maximum number of characters of one rule or name."""

_RULE = re.compile(r"(?P<chain>[^:]*): (?:(?P<line>line \d+): )?(?P<text>.*)", re.DOTALL)
_ICONS = {
    "equal": "M7 12.5l3.4 3.4L17 8.6",
    "different": "M12 6.5v7M12 17.4v.1",
    "undecided": "M9 9.4c.2-1.8 1.4-2.8 3-2.8 1.7 0 3 1.1 3 2.7 0 2.2-3 2.5-3 4.6M12 17.4v.1",
    "nothing": "M7 12h10",
    "loss": "M12 6.5v7M12 17.4v.1",
}


class PageRow(Struct, frozen=True):
    """A row of the page: a group, its examples, and the examples that are shown with their rules."""

    family: str
    group: DifferenceGroup
    with_rules: tuple[Example, ...]
    span: int

    @property
    def examples(self) -> list[Example]:
        """All examples of the group."""
        return self.group.examples

    @property
    def left_tone(self) -> str:
        """The most serious disposition of the first example on the left."""
        return _worst_disposition(self.examples[0].left) if self.examples else ""

    @property
    def right_tone(self) -> str:
        """The most serious disposition of the first example on the right."""
        return _worst_disposition(self.examples[0].right) if self.examples else ""

    @property
    def is_served_once(self) -> bool:
        """Whether one side serves packets that the other one does not serve: neither outcome is green then."""
        return self.group.is_loss or any(map(is_served_once, self.examples[:1]))

    @property
    def left_outcome(self) -> Markup:
        """The outcome on the left, with marks where addresses differ."""
        return highlighted(_outcome_lines(self.group.left_outcome), _outcome_lines(self.group.right_outcome))

    @property
    def right_outcome(self) -> Markup:
        """The outcome on the right, with marks where addresses differ."""
        return highlighted(_outcome_lines(self.group.right_outcome), _outcome_lines(self.group.left_outcome))


class ExampleRule(Struct, frozen=True):
    """A rule that the packets of an example hit; ``chain`` and ``line`` are empty if unknown."""

    chain: str
    line: str
    text: str


class ExamplePacket(Struct, frozen=True):
    """One packet of an example; ``others`` are its other properties."""

    source: str
    destination: str
    others: str


class PageSection(Struct, frozen=True):
    """The rows of one cause."""

    cause: Cause
    rows: tuple[PageRow, ...]


def html(report: Report) -> str:
    """Return a report as one HTML page."""
    files = PackageLoader("knft", "present")
    environment = Environment(
        loader=files,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _finalize(value) if type(value) is str else value,
    )
    environment.filters |= {"figure": _format_figure, "count": format_count, "prose": _code_between_backquotes}
    # knft's own files need no escaping.
    style, script = (Markup(files.get_source(environment, name)[0]) for name in ("page.css", "page.js"))  # noqa: S704
    found = overview(report)
    return environment.get_template("page.html.j2").render(
        report=report,
        found=found,
        style=style,
        script=script,
        policy=_security_policy(style, script),
        icons=_ICONS,
        tone="loss" if found.summary.result == "equal" and found.summary.is_loss else found.summary.result,
        max_services=MAX_SERVICES,
        max_affected=MAX_AFFECTED,
        example_packet=example_packet,
        is_served_once=is_served_once,
        split_rule=split_rule,
        format_decision=format_decision,
        **_rows(report, found),
    )


def _rows(report: Report, found: Overview) -> dict[str, Any]:
    """Return the rows that are on the page, and messages about those that are left out."""
    all_rows = [row for section in found.sections for row in section.rows] + list(found.undecided)
    listed = all_rows[:MAX_ROWS]
    rules = _choose_examples(listed, len(report.left_label) + len(report.right_label))
    shown = [PageRow(row.family, row.group, chosen, _columns(row)) for row, chosen in zip(listed, rules, strict=True)]
    sections = []
    for section in found.sections:
        section_rows, shown = shown[: len(section.rows)], shown[len(section.rows) :]
        if section_rows:
            sections.append(PageSection(section.cause, tuple(section_rows)))
    return {
        "sections": sections,
        "undecided": shown,
        "uninterpreted": found.uninterpreted_rules[:MAX_ROWS],
        "left_out": list(_omissions(all_rows, listed, rules, len(found.uninterpreted_rules))),
    }


def _columns(row: Row) -> int:
    return 3 if row.group.cause == "undecided" else 5


def _choose_examples(rows: list[Row], names: int) -> list[tuple[Example, ...]]:
    """Return the examples of each row that are shown with their rules: first one of each row, then more.

    ``names`` is the number of characters that the names of both sides take in an example.
    """
    available = MAX_RULES_SIZE
    chosen: list[list[Example]] = [[] for _ in rows]
    for turn in range(max((len(row.group.examples) for row in rows), default=0)):
        for row, examples in zip(rows, chosen, strict=True):
            # A row shows its first examples: none after one that does not fit.
            if turn == len(examples) < len(row.group.examples):
                example = row.group.examples[turn]
                size = _example_size(example) + names
                if size <= available:
                    available -= size
                    examples.append(example)
    return [tuple(examples) for examples in chosen]


def _example_size(example: Example) -> int:
    decisions = (item.text for item in (example.left_decision, example.right_decision) if item is not None)
    texts = (*example.left_rules, *example.right_rules, *decisions, example.trace_command)
    return (
        sum(min(len(text), MAX_TEXT_LENGTH) + 50 for text in texts)
        + 120 * (len(example.left) + len(example.right))
        + 600
    )


def _omissions(
    all_rows: list[Row], listed: list[Row], rules: list[tuple[Example, ...]], uninterpreted: int
) -> Iterator[str]:
    rest = len(all_rows) - len(listed)
    if rest:
        yield f"{format_count(rest, 'more row')} of {len(all_rows)} are left out: -o json has all"
    without_rules = sum(len(row.group.examples) - len(chosen) for row, chosen in zip(listed, rules, strict=True))
    if without_rules:
        count = format_count(without_rules, "example")
        yield f"the rules of {count} are left out to keep this page small: -o json has all"
    if uninterpreted > MAX_ROWS:
        count = format_count(uninterpreted - MAX_ROWS, "more rule")
        yield f"{count} that are not interpreted are left out: -o json has all"


def _worst_disposition(outcomes: tuple[ObservedOutcome, ...]) -> str:
    dispositions = {item.fate for item in outcomes}
    return next(
        (
            disposition
            for disposition in ("undecided", "dropped", "rejected", "delivered")
            if disposition in dispositions
        ),
        "",
    )


def is_served_once(example: Example) -> bool:
    """Tell whether only one side delivers the packets of an example, or only one side translates them."""
    sides = (example.left, example.right)
    is_delivered = {_worst_disposition(side) == "delivered" for side in sides}
    is_translated = {any(outcome.endpoint for outcome in side) for side in sides}
    return len(is_delivered) > 1 or len(is_translated) > 1


def example_packet(example: Example) -> ExamplePacket | None:
    """Return the packet that the flags of ``knft trace`` describe, None if they do not."""
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in example.trace)
    source, destination = flags.pop("from", ""), flags.pop("to", "")
    if not source or not destination:
        return None
    return ExamplePacket(source, destination, ", ".join(f"{name} {value}".strip() for name, value in flags.items()))


def _outcome_lines(text: str) -> str:
    """Return an outcome as the page shows it, with each of several alternatives on a line."""
    return _finalize(text).replace("; ", ";\n")


def _finalize(text: str) -> str:
    """Return a text as the page shows it: without invisible characters, truncated, and not yet HTML-escaped."""
    return truncated(escape_invisible(text), MAX_TEXT_LENGTH)


def split_rule(rule: str) -> ExampleRule:
    """Return the chain, line and text of a rule of an example; all of it is the text if it has another form."""
    found = _RULE.fullmatch(rule)
    return ExampleRule(found["chain"], found["line"] or "", found["text"]) if found else ExampleRule("", "", rule)


def _code_between_backquotes(text: str) -> Markup:
    """Return a sentence with the parts between backquotes as code."""
    parts = truncated(escape_invisible(text), MAX_TEXT_LENGTH).split("`")
    pieces = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    ]
    return Markup("").join(pieces)


def _format_figure(count: int) -> str:
    return format_number(count).replace(" ", "\N{NARROW NO-BREAK SPACE}")


def _security_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: only this style and this script, given by their hashes, are allowed."""
    hashed = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    allowed = f"style-src 'sha256-{hashed[0]}'; script-src 'sha256-{hashed[1]}'"
    return Markup(f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'")  # noqa: S704 - contains no external text
