"""What a comparison has found, as values for people and programs: differences in groups, with examples."""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from msgspec import Struct

from knft.interpret.compare import words
from knft.interpret.compare.boxes import Shares, shares
from knft.interpret.compare.findings import Counts, Difference
from knft.interpret.compare.intent import explained
from knft.interpret.compare.services import ServiceNames
from knft.interpret.outcomes import Fate, Passed, Path
from knft.interpret.ranges import only
from knft.interpret.rules import IpVersion, Unknown

EXAMPLES = 3
"""So many examples of a group are kept, and of an intended difference, whoever's it is."""


class Seen(Struct, frozen=True):
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
    left: tuple[Seen, ...]
    right: tuple[Seen, ...]
    left_rules: tuple[str, ...]
    right_rules: tuple[str, ...]


class Group(Struct):
    """Differences with one cause, of one Service port ("" where it is nobody's); ``classes`` counts them.

    ``intent`` names the intended difference, or several with ``+`` where each is needed; ``sentence`` says what clients
    would see. ``left`` and ``right`` are what they see on either side, empty where that is not the same for all of the
    group.
    """

    cause: str
    service: str
    intent: str | None
    sentence: str
    classes: int = 0
    examples: list[Example] = []
    left: str = ""
    right: str = ""


class Unread(Struct, frozen=True):
    """A rule that is not interpreted, and that packets can get to; ``line`` is 0 where there are no lines."""

    side: str
    chain: str
    line: int
    text: str


class FamilyReport(Struct):
    """The result for one family."""

    family: str
    counts: Counts
    groups: list[Group] = []
    unread: list[Unread] = []


class About(Struct, frozen=True):
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
    about: About = About()

    @property
    def is_equal(self) -> bool:
        """Whether both sides do the same, but for what is meant."""
        return not any(item.counts.different or item.counts.undecided for item in self.families)


def summarise(
    version: IpVersion, counts: Counts, differences: Iterable[Difference], names: ServiceNames
) -> FamilyReport:
    """Return the report of one family, having gone through all differences once."""
    groups: dict[tuple[str, str, str | None, str], Group] = {}
    unread: dict[Unread, None] = {}
    shown: Counter[object] = Counter()
    for difference in differences:
        if difference.is_undecided:
            unread.update(dict.fromkeys(_unread(difference)))
        group = _group(version, difference, names)
        found = groups.setdefault((group.cause, group.service, group.intent, group.sentence), group)
        found.classes += 1
        kind = group.intent or (group.cause, group.service, group.sentence)
        if shown[kind] < EXAMPLES:
            shown[kind] += 1
            found.examples.append(_example(version, difference))
    listed = sorted(groups.values(), key=lambda group: (group.intent or "", group.cause, group.service, group.sentence))
    return FamilyReport(f"IPv{version}", counts, listed, list(unread))


def _group(version: IpVersion, difference: Difference, names: ServiceNames) -> Group:
    packets, located = difference.packets, difference.located
    port = only((packets if located is None else located).box.ports)
    name = names.name(packets.destination, packets.protocol, port, is_local=packets.is_local)
    if difference.is_undecided:
        return Group("undecided", name or "", None, "a rule that is not interpreted decides on it")
    if difference.reasons:
        return Group("intent", name or "", " + ".join(difference.reasons), explained(difference.reasons))
    left, right = shares(difference.piece.left), shares(difference.piece.right)
    seen = words.outcomes(version, left), words.outcomes(version, right)
    return Group(_cause(left, right), name or "", None, words.change(*seen), left=seen[0], right=seen[1])


def _cause(left: Shares, right: Shares) -> str:
    """Return what kind of difference it is, the gravest first."""
    aspects = {
        "verdict": {(outcome.fate, outcome.is_translated) for outcome, _ in left}
        ^ {(outcome.fate, outcome.is_translated) for outcome, _ in right},
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
        sender=words.sender(version, difference.packets, piece.box),
        destination=words.destination(version, difference.destination, difference.packets, piece.box),
        client=words.client(version, difference.client),
        left=tuple(_seen(version, shares(piece.left))),
        right=tuple(_seen(version, shares(piece.right))),
        left_rules=_rules(piece.left),
        right_rules=_rules(piece.right),
    )


def _seen(version: IpVersion, found: Shares) -> Iterator[Seen]:
    for outcome, share in words.in_order(found):
        endpoint = words.endpoint(version, outcome) if outcome.is_translated else ""
        source = words.source(version, outcome.source)
        yield Seen(str(share), outcome.fate.value, endpoint, source, outcome.seconds)


def _rules(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return the rules of the first path, in the order in which they were met."""
    first = next(iter(paths), None)
    return tuple(f"{passed.chain}: {words.rule(passed.rule)}" for passed in trail(first)) if first else ()


def trail(path: Path) -> list[Passed]:
    """Return the rules of a path, the first one first."""
    found = []
    passed = path.trail
    while passed is not None:
        found.append(passed)
        passed = passed.before
    return found[::-1]


def _unread(difference: Difference) -> Iterator[Unread]:
    for side, paths in (("left", difference.piece.left), ("right", difference.piece.right)):
        for path in paths:
            if path.outcome.fate is Fate.UNDECIDED and path.trail is not None:
                rule = path.trail.rule
                said = rule.text or " ".join(step.text for step in rule.steps if isinstance(step, Unknown))
                yield Unread(side, path.trail.chain, rule.line, said)
