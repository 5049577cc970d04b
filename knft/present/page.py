"""The form to attach to a change request: one page of HTML that loads nothing, neither from outside nor beside it."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from knft.interpret.compare.report import Example, Group, Report, Seen
from knft.present.overview import Cause, Overview, Row, overview
from knft.present.wording import clipped, counted, number, visible

ROWS = 5_000
"""So many differences, undecided packets and uninterpreted rules are listed; a browser stays quick with them."""

RULES_SIZE = 1_500_000
"""So many characters of rules are in a page with many differences; mail systems take some MiB."""

NAMES = 200
"""So many Services are named that differ for one reason by intent."""

LONGEST = 2_000
"""So many characters of one rule or name are shown."""

_FATES = {"delivered": "delivered", "rejected": "refused", "dropped": "dropped", "undecided": "undecided"}
_RULE = re.compile(r"(?P<chain>[^:]*): (?:(?P<line>line \d+): )?(?P<text>.*)", re.DOTALL)
_ICONS = {
    "equal": "M7 12.5l3.4 3.4L17 8.6",
    "different": "M12 6.5v7M12 17.4v.1",
    "undecided": "M9 9.4c.2-1.8 1.4-2.8 3-2.8 1.7 0 3 1.1 3 2.7 0 2.2-3 2.5-3 4.6M12 17.4v.1",
    "nothing": "M7 12h10",
}


class Shown(Struct, frozen=True):
    """A row of the page: a group, its examples, and those whose rules there is room for."""

    family: str
    group: Group
    with_rules: tuple[Example, ...]
    span: int

    @property
    def examples(self) -> list[Example]:
        """The examples that there are."""
        return self.group.examples

    @property
    def left_tone(self) -> str:
        """The gravest fate that an example has on the left."""
        return _gravest(self.examples[0].left) if self.examples else ""

    @property
    def right_tone(self) -> str:
        """The gravest fate that an example has on the right."""
        return _gravest(self.examples[0].right) if self.examples else ""


class PassedRule(Struct, frozen=True):
    """A rule that an example passes: its chain and line, empty where not known, and its text."""

    chain: str
    line: str
    text: str


class ShownSection(Struct, frozen=True):
    """The rows of one cause."""

    cause: Cause
    rows: tuple[Shown, ...]


def html(report: Report) -> str:
    """Return a report as a page."""
    files = PackageLoader("knft", "present")
    environment = Environment(
        loader=files,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    environment.filters |= {"figure": _figure, "prose": _prose}
    # Ours, so that they go into the page as they are.
    style, script = (Markup(files.get_source(environment, name)[0]) for name in ("page.css", "page.js"))  # noqa: S704
    found = overview(report)
    return environment.get_template("page.html.j2").render(
        report=report,
        found=found,
        style=style,
        script=script,
        policy=_policy(style, script),
        fates=_FATES,
        icons=_ICONS,
        names=NAMES,
        parted=parted,
        **_rows(report, found),
    )


def _rows(report: Report, found: Overview) -> dict[str, Any]:
    """Return what of the rows is in the page, and in words what is not."""
    every = [row for section in found.sections for row in section.rows] + list(found.undecided)
    listed = every[:ROWS]
    rules = _with_room(listed, len(report.left) + len(report.right))
    shown = [Shown(row.family, row.group, kept, _span(row)) for row, kept in zip(listed, rules, strict=True)]
    sections = []
    for section in found.sections:
        mine, shown = shown[: len(section.rows)], shown[len(section.rows) :]
        if mine:
            sections.append(ShownSection(section.cause, tuple(mine)))
    return {
        "sections": sections,
        "undecided": shown,
        "doubts": found.doubts[:ROWS],
        "left_out": list(_left_out(every, listed, rules, len(found.doubts))),
    }


def _span(row: Row) -> int:
    return 3 if row.group.cause == "undecided" else 5


def _with_room(rows: list[Row], names: int) -> list[tuple[Example, ...]]:
    """Return for each row the examples whose rules are shown: first one of each row, then more.

    ``names`` is how much an example takes to name both sides.
    """
    room = RULES_SIZE
    kept: list[list[Example]] = [[] for _ in rows]
    for turn in range(max((len(row.group.examples) for row in rows), default=0)):
        for row, mine in zip(rows, kept, strict=True):
            # A row shows its examples from the first on: none after one that had no room.
            if turn == len(mine) < len(row.group.examples):
                example = row.group.examples[turn]
                size = _size(example) + names
                if size <= room:
                    room -= size
                    mine.append(example)
    return [tuple(mine) for mine in kept]


def _size(example: Example) -> int:
    rules = (*example.left_rules, *example.right_rules)
    return sum(min(len(rule), LONGEST) + 50 for rule in rules) + 120 * (len(example.left) + len(example.right)) + 300


def _left_out(every: list[Row], listed: list[Row], rules: list[tuple[Example, ...]], doubts: int) -> Iterator[str]:
    rest = len(every) - len(listed)
    if rest:
        yield f"{counted(rest, 'more row')} of {len(every)} are left out here: -o json has them all"
    silent = sum(len(row.group.examples) - len(kept) for row, kept in zip(listed, rules, strict=True))
    if silent:
        yield f"the rules of {counted(silent, 'example')} are left out, to keep this page small: -o json has them all"
    if doubts > ROWS:
        yield f"{counted(doubts - ROWS, 'more rule')} that are not interpreted are left out: -o json has them all"


def _gravest(seen: tuple[Seen, ...]) -> str:
    fates = {item.fate for item in seen}
    return next((fate for fate in ("undecided", "dropped", "rejected", "delivered") if fate in fates), "")


def _final(value: object) -> object:
    """Return what is printed of a value, before it is escaped: others' words are made visible, and bounded."""
    return clipped(visible(value), LONGEST) if type(value) is str else value


def parted(rule: str) -> PassedRule:
    """Return the parts of a rule that an example passes; where they cannot be told, all of it is the text."""
    found = _RULE.fullmatch(rule)
    return PassedRule(found["chain"], found["line"] or "", found["text"]) if found else PassedRule("", "", rule)


def _prose(text: str) -> Markup:
    """Return words for people, with what they have between backquotes as code."""
    parts = clipped(visible(text), LONGEST).split("`")
    said = [Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)]
    return Markup("").join(said)


def _figure(count: int) -> str:
    return number(count).replace(" ", "\N{NARROW NO-BREAK SPACE}")


def _policy(style: str, script: str) -> str:
    """Return what the page may do: nothing but this style and this script, known by their hashes."""
    hashed = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    allowed = f"style-src 'sha256-{hashed[0]}'; script-src 'sha256-{hashed[1]}'"
    return Markup(f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'")  # noqa: S704 - no one else's words
