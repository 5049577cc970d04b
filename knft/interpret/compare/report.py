"""What a comparison has found, as values for people and programs: differences in groups, with examples."""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from msgspec import Struct

from knft.families import IpVersion
from knft.interpret.compare import formatting
from knft.interpret.compare.expected_differences.catalog import descriptions
from knft.interpret.compare.findings import Counts, Difference
from knft.interpret.compare.partition import Shares, outcome_shares
from knft.interpret.compare.services import ServiceNames
from knft.interpret.outcomes import Disposition, Path, RuleHit
from knft.interpret.ranges import sole_value
from knft.interpret.rules import Unknown

EXAMPLES = 3
"""So many examples of a group are kept, and of an intended difference, whoever's it is."""


class ObservedOutcome(Struct, frozen=True):
    """One thing that a client can see, and how many clients do, as a fraction such as ``1/3``.

    ``fate`` is delivered, rejected, dropped or undecided; ``endpoint`` is empty where nobody translates the packet;
    ``source`` is what the endpoint sees: kept, masqueraded, frontend, or an address; ``seconds`` is for how long the
    client is sent to the same endpoint, None without affinity.
    """

    share: str
    fate: str
    endpoint: str = ""
    source: str = "kept"
    seconds: int | None = None


class Example(Struct, frozen=True):
    """Packets that fare otherwise on either side, in words, and the rules that they pass."""

    sender: str
    destination: str
    client: str
    left: tuple[ObservedOutcome, ...]
    right: tuple[ObservedOutcome, ...]
    left_rules: tuple[str, ...]
    right_rules: tuple[str, ...]


class DifferenceGroup(Struct):
    """Differences with one cause, of one Service port ("" where it is nobody's); ``classes`` counts them.

    ``intent`` names the intended difference, or several with ``+`` where each is needed; ``sentence`` says what clients
    would see. ``left`` and ``right`` are what they see on either side, empty where that is not the same for all of the
    group.
    """

    cause: str
    service: str
    reason: str | None
    sentence: str
    classes: int = 0
    examples: list[Example] = []
    left: str = ""
    right: str = ""


class UninterpretedRule(Struct, frozen=True):
    """A rule that is not interpreted, and that packets can get to; ``line`` is 0 where there are no lines."""

    side: str
    chain: str
    line: int
    text: str


class FamilyReport(Struct):
    """The result for one family."""

    family: str
    counts: Counts
    groups: list[DifferenceGroup] = []
    uninterpreted_rules: list[UninterpretedRule] = []


class ReportOrigin(Struct, frozen=True):
    """Where a report is from, for those who read it later; what is empty is not known.

    ``date`` is when it was made and ``command`` what was typed, as text; ``left`` and ``right`` are the files or places
    that the sides were read from.
    """

    node: str = ""
    addresses: tuple[str, ...] = ()
    date: str = ""
    command: str = ""
    version: str = ""
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()


class Report(Struct):
    """The result: ``left`` and ``right`` are what the sides are called."""

    left: str
    right: str
    families: list[FamilyReport]
    seconds: float = 0.0
    remarks: list[str] = []
    about: ReportOrigin = ReportOrigin()

    @property
    def is_equal(self) -> bool:
        """Whether both sides do the same, but for what is meant."""
        return not any(item.counts.different or item.counts.undecided for item in self.families)


def summarise(
    version: IpVersion, counts: Counts, differences: Iterable[Difference], names: ServiceNames
) -> FamilyReport:
    """Return the report of one family, having gone through all differences once."""
    groups: dict[tuple[str, str, str | None, str], DifferenceGroup] = {}
    unread: dict[UninterpretedRule, None] = {}
    shown: Counter[object] = Counter()
    for difference in differences:
        if difference.is_undecided:
            unread.update(dict.fromkeys(_unread(difference)))
        group = _group(version, difference, names)
        found = groups.setdefault((group.cause, group.service, group.reason, group.sentence), group)
        found.classes += 1
        kind = group.reason or (group.cause, group.service, group.sentence)
        if shown[kind] < EXAMPLES:
            shown[kind] += 1
            found.examples.append(_example(version, difference))
    listed = sorted(groups.values(), key=lambda group: (group.reason or "", group.cause, group.service, group.sentence))
    return FamilyReport(f"IPv{version}", counts, listed, list(unread))


def _group(version: IpVersion, difference: Difference, names: ServiceNames) -> DifferenceGroup:
    packets, located = difference.packets, difference.located
    port = sole_value((packets if located is None else located).fields.ports)
    name = names.name(packets.destination, packets.protocol, port, is_local=packets.is_local)
    if difference.is_undecided:
        return DifferenceGroup("undecided", name or "", None, "a rule that is not interpreted decides on it")
    if difference.reasons:
        return DifferenceGroup("intent", name or "", " + ".join(difference.reasons), descriptions(difference.reasons))
    left, right = outcome_shares(difference.piece.left), outcome_shares(difference.piece.right)
    seen = formatting.outcomes(version, left), formatting.outcomes(version, right)
    return DifferenceGroup(_cause(left, right), name or "", None, formatting.change(*seen), left=seen[0], right=seen[1])


def _cause(left: Shares, right: Shares) -> str:
    """Return what kind of difference it is, the gravest first."""
    aspects = {
        "verdict": {(outcome.disposition, outcome.is_translated) for outcome, _ in left}
        ^ {(outcome.disposition, outcome.is_translated) for outcome, _ in right},
        "endpoints": {outcome[1:3] for outcome, _ in left} ^ {outcome[1:3] for outcome, _ in right},
        "shares": _often(left).items() ^ _often(right).items(),
        "masquerade": {outcome[1:4] for outcome, _ in left} ^ {outcome[1:4] for outcome, _ in right},
        "affinity": {outcome.seconds for outcome, _ in left} ^ {outcome.seconds for outcome, _ in right},
    }
    return next((cause for cause, differs in aspects.items() if differs), "shares")


def _often(found: Shares) -> dict[tuple[object, ...], Fraction]:
    """Return how many clients get to each endpoint."""
    often: dict[tuple[object, ...], Fraction] = {}
    for outcome, share in found:
        often[outcome[1:3]] = often.get(outcome[1:3], Fraction()) + share
    return often


def _example(version: IpVersion, difference: Difference) -> Example:
    piece = difference.piece
    return Example(
        sender=formatting.sender(version, difference.packets, piece.fields),
        destination=formatting.destination(version, difference.destination, difference.packets, piece.fields),
        client=formatting.client(version, difference.client),
        left=tuple(_seen(version, outcome_shares(piece.left))),
        right=tuple(_seen(version, outcome_shares(piece.right))),
        left_rules=_rules(piece.left),
        right_rules=_rules(piece.right),
    )


def _seen(version: IpVersion, found: Shares) -> Iterator[ObservedOutcome]:
    for outcome, share in formatting.in_order(found):
        endpoint = formatting.endpoint(version, outcome) if outcome.is_translated else ""
        source = formatting.source(version, outcome.source)
        yield ObservedOutcome(str(share), outcome.disposition.value, endpoint, source, outcome.seconds)


def _rules(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return the rules of the first path, in the order in which they were met."""
    first = next(iter(paths), None)
    return tuple(f"{passed.chain}: {formatting.rule(passed.rule)}" for passed in trail(first)) if first else ()


def trail(path: Path) -> list[RuleHit]:
    """Return the rules of a path, the first one first."""
    found = []
    passed = path.trail
    while passed is not None:
        found.append(passed)
        passed = passed.previous
    return found[::-1]


def _unread(difference: Difference) -> Iterator[UninterpretedRule]:
    for side, paths in (("left", difference.piece.left), ("right", difference.piece.right)):
        for path in paths:
            if path.outcome.disposition is Disposition.UNDECIDED and path.trail is not None:
                rule = path.trail.rule
                said = rule.text or " ".join(step.text for step in rule.steps if isinstance(step, Unknown))
                yield UninterpretedRule(side, path.trail.chain, rule.line, said)
