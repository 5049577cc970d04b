"""What every form shows of a report: a verdict in words, differences by cause, intended ones by reason."""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import Example, Group, Report, Unread
from knft.present.wording import counted

Kind = Literal["equal", "different", "undecided", "nothing"]
"""How a comparison ends; nothing, where there was no class of packets at all."""

EXAMPLES = 3
"""So many examples are shown of an intended difference."""


class Cause(Struct, frozen=True):
    """What kind of difference it is, in words for people."""

    key: str
    title: str
    what: str


CAUSES = (
    Cause("verdict", "Another verdict", "served on one side, and refused, dropped or passed untranslated on the other"),
    Cause("endpoints", "Other endpoints", "packets reach endpoints that the other side does not choose"),
    Cause("masquerade", "Another source address", "the same endpoints see another client address"),
    Cause("affinity", "Other session affinity", "clients stay with their endpoint for another time, or not at all"),
    Cause("shares", "Other shares", "the same endpoints are chosen in other proportions"),
)
"""The gravest first."""


class Verdict(Struct, frozen=True):
    """The answer: its kind, in one sentence, and what has to be known beside."""

    kind: Kind
    headline: str
    detail: str


class Row(Struct, frozen=True):
    """A group of differences, and the family that it is of."""

    family: str
    group: Group


class Section(Struct, frozen=True):
    """All differences of one cause."""

    cause: Cause
    rows: tuple[Row, ...]


class Intended(Struct, frozen=True):
    """All differences with one reason to be there, of all Services and families; ``""`` is no Service's packets."""

    reason: str
    sentence: str
    classes: int
    services: tuple[str, ...]
    examples: tuple[tuple[str, Example], ...]

    @property
    def where(self) -> str:
        """What they are found at, in words."""
        named = {name.partition(":")[0] for name in self.services if name}
        parts = [counted(len(named), "Service")] if named else []
        return " and ".join([*parts, *(["packets to no Service"] if "" in self.services else [])])


class Doubt(Struct, frozen=True):
    """A rule that is not interpreted, the family that it is of, and what the side is called."""

    family: str
    side: str
    rule: Unread


class Overview(Struct, frozen=True):
    """A report in the order in which people read it."""

    verdict: Verdict
    totals: Counts
    sections: tuple[Section, ...]
    undecided: tuple[Row, ...]
    doubts: tuple[Doubt, ...]
    intended: tuple[Intended, ...]

    @property
    def differences(self) -> int:
        """How many groups of differences there are, those by intent left out."""
        return sum(len(section.rows) for section in self.sections)


def overview(report: Report) -> Overview:
    """Return a report as people read it."""
    rows = sorted(_rows(report), key=_by_service)
    different = [row for row in rows if row.group.intent is None and row.group.cause != "undecided"]
    totals = total(report)
    return Overview(
        _verdict(totals, [row.group.service for row in different]),
        totals,
        tuple(_sections(different)),
        tuple(row for row in rows if row.group.cause == "undecided"),
        tuple(_doubts(report)),
        tuple(_intended([row for row in rows if row.group.intent is not None])),
    )


def total(report: Report) -> Counts:
    """Return the counts of all families together."""
    counts = [item.counts for item in report.families]
    return Counts(
        equal=sum(item.equal for item in counts),
        by_intent=sum(item.by_intent for item in counts),
        different=sum(item.different for item in counts),
        undecided=sum(item.undecided for item in counts),
    )


def kind(counts: Counts) -> Kind:
    """Return how a comparison with these counts ends."""
    if counts.different:
        return "different"
    if counts.undecided:
        return "undecided"
    return "equal" if counts.equal or counts.by_intent else "nothing"


def _verdict(counts: Counts, services: Iterable[str]) -> Verdict:
    found = kind(counts)
    named = {name.partition(":")[0] for name in services if name}
    place = f" at {counted(len(named), 'Service')}" if named else ", at no Service that is known"
    headlines: dict[Kind, str] = {
        "different": f"Clients would see a difference{place}",
        "undecided": "No difference is known, but not everything could be decided",
        "equal": "Both sides do the same" + (", but for what is meant" if counts.by_intent else ""),
        "nothing": "Nothing was compared: neither side tells any packets apart",
    }
    return Verdict(found, headlines[found], ", ".join(_figures(counts)))


def _figures(counts: Counts) -> Iterator[str]:
    yield f"{counted(counts.different, 'class')} of packets {'differs' if counts.different == 1 else 'differ'}"
    yield f"{counted(counts.undecided, 'class')} undecided"
    yield f"{counted(counts.by_intent, 'class')} different by intent"
    yield f"{counted(counts.equal, 'class')} equal"


def _rows(report: Report) -> Iterator[Row]:
    for item in report.families:
        for group in item.groups:
            yield Row(item.family, group)


def _by_service(row: Row) -> tuple[bool, str, str, str]:
    """Order by Service, those of no Service last."""
    return not row.group.service, row.group.service, row.family, row.group.sentence


def _sections(rows: Iterable[Row]) -> Iterator[Section]:
    found: dict[str, list[Row]] = {cause.key: [] for cause in CAUSES}
    for row in rows:
        found.setdefault(row.group.cause, []).append(row)
    known = {cause.key: cause for cause in CAUSES}
    for key, listed in found.items():
        if listed:
            yield Section(known.get(key, Cause(key, key.capitalize(), "")), tuple(listed))


def _doubts(report: Report) -> Iterator[Doubt]:
    for item in report.families:
        for rule in item.unread:
            yield Doubt(item.family, report.left if rule.side == "left" else report.right, rule)


def _intended(rows: Iterable[Row]) -> Iterator[Intended]:
    """Yield them by reason, with examples of different Services."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.group.intent or "", row.group.sentence), []).append(row)
    for (reason, sentence), listed in sorted(found.items()):
        services = dict.fromkeys(row.group.service for row in listed)
        classes = sum(row.group.classes for row in listed)
        firsts = {row.group.service: row for row in reversed(listed) if row.group.examples}
        examples = [(row.family, row.group.examples[0]) for row in reversed(firsts.values())]
        yield Intended(reason, sentence, classes, tuple(services), tuple(examples[:EXAMPLES]))
