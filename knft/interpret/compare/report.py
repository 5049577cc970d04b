"""Summarises the differences of a comparison in groups with examples, as input for the output formats."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from knft.families import IpVersion
from knft.interpret.compare import formatting
from knft.interpret.compare.deciding_rules import DecidingRule, FileOfChain, deciding_rule
from knft.interpret.compare.example_packets import NO_ADDRESSES, LocalAddresses, is_possible, trace_arguments
from knft.interpret.compare.expected_differences.catalogue import descriptions
from knft.interpret.compare.findings import Counts, Difference, is_loss
from knft.interpret.compare.partition import Piece, Shares, outcome_shares
from knft.interpret.compare.services import ServiceNames
from knft.interpret.outcomes import Disposition, Path, rule_hits
from knft.interpret.ranges import sole_value
from knft.interpret.rules import Unknown

MAX_EXAMPLES = 3
"""The maximum number of examples of a group, and of an expected difference in all its groups together."""

Result = Literal["equal", "different", "undecided", "nothing"]
"""The result of a comparison; ``nothing`` if it says nothing about any Service."""


class ObservedOutcome(Struct, frozen=True):
    """An outcome that clients can observe; ``share`` is a fraction such as ``1/3``.

    ``fate`` is the value of the Disposition, under its JSON key: delivered, rejected, dropped or undecided.
    ``endpoint`` is empty if the destination is not translated. ``source`` is the source that the endpoint sees: kept,
    masqueraded, frontend, or an address.
    ``seconds`` is the session affinity timeout, None without affinity. ``reply`` is the reply of a rejection, empty for
    port unreachable. ``lost_mark`` has the bits of the packet's mark that are overwritten. ``scheduler`` is IPVS's, if
    it does not choose all endpoints equally often.
    """

    share: str
    fate: str
    endpoint: str = ""
    source: str = "kept"
    seconds: int | None = None
    reply: str = ""
    lost_mark: int = 0
    scheduler: str = ""


class Example(Struct, frozen=True):
    """Packets with different outcomes on the two sides, as text, and the rules that they hit.

    ``left_decision`` and ``right_decision`` are the rules that decide, None if no rule does. ``trace`` are the flags of
    ``knft trace`` for one of the packets.
    """

    sender: str
    destination: str
    client: str
    left: tuple[ObservedOutcome, ...]
    right: tuple[ObservedOutcome, ...]
    left_rules: tuple[str, ...]
    right_rules: tuple[str, ...]
    left_decision: DecidingRule | None = None
    right_decision: DecidingRule | None = None
    trace: tuple[str, ...] = ()

    @property
    def trace_command(self) -> str:
        """The flags of ``knft trace`` as a shell takes them."""
        return shlex.join(self.trace)


class DifferenceGroup(Struct):
    """Differences with one cause of one Service port ("" if the destination is no frontend); ``classes`` counts them.

    ``reason`` names the expected difference, or several joined by ``+`` if each is necessary; None if the difference is
    unexpected. ``description`` is a phrase about the outcomes. ``left_outcome`` and ``right_outcome`` are empty if they
    vary within the group. ``is_loss`` tells whether the left side serves packets that the right side does not serve.
    """

    cause: str
    service: str
    reason: str | None
    description: str
    classes: int = 0
    examples: list[Example] = []
    left_outcome: str = ""
    right_outcome: str = ""
    is_loss: bool = False


class UninterpretedRule(Struct, frozen=True):
    """An uninterpreted rule that packets hit; ``side`` is left or right, ``line`` is 0 if the capture has no lines."""

    side: str
    chain: str
    line: int
    text: str


class FamilyReport(Struct):
    """The result for one IP family; ``has_frontends`` tells whether either side has a frontend of a Service."""

    family: str
    counts: Counts
    groups: list[DifferenceGroup] = []
    uninterpreted_rules: list[UninterpretedRule] = []
    has_frontends: bool = True


class ReportMetadata(Struct, frozen=True):
    """The node, time, command line and input files of a comparison; unknown values are empty.

    ``version`` is knft's. ``right_files`` are the manifests that knft's rules were rendered from. ``left_files`` is
    empty: ``Report.left_name`` names the files of a capture.
    """

    node: str = ""
    addresses: tuple[str, ...] = ()
    date: str = ""
    command: str = ""
    version: str = ""
    left_files: tuple[str, ...] = ()
    right_files: tuple[str, ...] = ()


class Report(Struct):
    """The result of a comparison; ``left_name`` and ``right_name`` name the sides, and ``labels`` do so in short."""

    left_name: str
    right_name: str
    families: list[FamilyReport]
    seconds: float = 0.0
    warnings: list[str] = []
    metadata: ReportMetadata = ReportMetadata()
    labels: tuple[str, str] = ("kube-proxy", "knft")

    @property
    def left_label(self) -> str:
        """A short name of the left side."""
        return self.labels[0]

    @property
    def right_label(self) -> str:
        """A short name of the right side."""
        return self.labels[1]

    @property
    def is_equal(self) -> bool:
        """Whether no packets differ unexpectedly or are undecided; also true if no packets were compared."""
        return not any(item.counts.different or item.counts.undecided for item in self.families)

    @property
    def losing_services(self) -> tuple[str, ...]:
        """The Services that some clients reach on the left side alone, because of an expected difference."""
        groups = [group for item in self.families for group in item.groups if group.reason and group.is_loss]
        return tuple(sorted({group.service.partition(":")[0] for group in groups} - {""}))

    @property
    def totals(self) -> Counts:
        """The sum of the counts of all families."""
        totals = Counts()
        for item in self.families:
            totals.add(item.counts)
        return totals

    @property
    def nothing_compared_reason(self) -> str:
        """Why the report says nothing about any Service, "" if it does."""
        totals = self.totals
        if totals.different:
            return ""
        if totals.equal or totals.expected:
            is_without_services = not totals.undecided and not any(item.has_frontends for item in self.families)
            return "neither side has a Service" if is_without_services else ""
        if totals.undecided:
            return "all packets reach a rule that knft cannot interpret"
        return "no IP family has rules on both sides"

    @property
    def result(self) -> Result:
        """The result of the comparison."""
        if self.nothing_compared_reason:
            return "nothing"
        totals = self.totals
        if totals.different:
            return "different"
        return "undecided" if totals.undecided else "equal"


class RuleFiles(Struct, frozen=True):
    """Finds the file or command that the rules of a chain come from, on each side."""

    left: FileOfChain = lambda _: ""
    right: FileOfChain = lambda _: ""


NO_FILES = RuleFiles()


def summarise(
    version: IpVersion,
    counts: Counts,
    differences: Iterable[Difference],
    names: ServiceNames,
    files: RuleFiles = NO_FILES,
    *,
    known: LocalAddresses = NO_ADDRESSES,
) -> FamilyReport:
    """Return the report of one family; consumes ``differences`` once. ``known`` are the addresses of the node."""
    groups: dict[tuple[str, str, str | None, str], DifferenceGroup] = {}
    uninterpreted: dict[UninterpretedRule, None] = {}
    examples: Counter[object] = Counter()
    for difference in differences:
        if difference.is_undecided:
            uninterpreted.update(dict.fromkeys(_uninterpreted_rules(difference)))
        new = _group(version, difference, names)
        group = groups.setdefault((new.cause, new.service, new.reason, new.description), new)
        group.classes += 1
        group.is_loss = group.is_loss or is_loss(difference)
        kind = group.reason or (group.cause, group.service, group.description)
        if examples[kind] < MAX_EXAMPLES:
            piece = difference.differing_piece
            if is_possible(difference, piece.fields):
                examples[kind] += 1
                group.examples.append(_example(version, difference, piece, files, known))
    ordered = sorted(
        groups.values(), key=lambda group: (group.reason or "", group.cause, group.service, group.description)
    )
    return FamilyReport(f"IPv{version}", counts, ordered, list(uninterpreted), names.has_frontends)


def _group(version: IpVersion, difference: Difference, names: ServiceNames) -> DifferenceGroup:
    packets, located = difference.packets, difference.located_piece
    port = sole_value((packets if located is None else located).fields.ports)
    name = names.name(packets.destination, packets.protocol, port, is_local=packets.is_local)
    if difference.is_undecided:
        return DifferenceGroup("undecided", name or "", None, "these packets reach a rule that knft cannot interpret")
    if difference.reasons:
        return DifferenceGroup("expected", name or "", " + ".join(difference.reasons), descriptions(difference.reasons))
    left, right = outcome_shares(difference.differing_piece.left), outcome_shares(difference.differing_piece.right)
    texts = formatting.format_outcomes(version, left), formatting.format_outcomes(version, right)
    sentence = formatting.format_change(*texts)
    return DifferenceGroup(
        _cause(left, right), name or "", None, sentence, left_outcome=texts[0], right_outcome=texts[1]
    )


def _cause(left: Shares, right: Shares) -> str:
    """Return the cause of a difference: the first property in which the sides differ."""
    aspects: dict[str, object] = {
        "verdict": {(outcome.disposition, outcome.is_translated) for outcome, _ in left}
        ^ {(outcome.disposition, outcome.is_translated) for outcome, _ in right},
        "reply": {outcome.reply for outcome, _ in left} ^ {outcome.reply for outcome, _ in right},
        "endpoints": {outcome[1:3] for outcome, _ in left} ^ {outcome[1:3] for outcome, _ in right},
        "shares": _endpoint_shares(left).items() ^ _endpoint_shares(right).items(),
        "masquerade": {outcome[1:4] for outcome, _ in left} ^ {outcome[1:4] for outcome, _ in right},
        "affinity": {outcome.seconds for outcome, _ in left} ^ {outcome.seconds for outcome, _ in right},
        "scheduler": {outcome.scheduler for outcome, _ in left} ^ {outcome.scheduler for outcome, _ in right},
        "mark": {outcome.lost_mark for outcome, _ in left} ^ {outcome.lost_mark for outcome, _ in right},
    }
    return next((cause for cause, differs in aspects.items() if differs), "shares")


def _endpoint_shares(shares: Shares) -> dict[tuple[object, ...], Fraction]:
    """Return the share of each endpoint."""
    by_endpoint: dict[tuple[object, ...], Fraction] = {}
    for outcome, share in shares:
        by_endpoint[outcome[1:3]] = by_endpoint.get(outcome[1:3], Fraction()) + share
    return by_endpoint


def _example(
    version: IpVersion, difference: Difference, piece: Piece, files: RuleFiles, known: LocalAddresses
) -> Example:
    cause = _cause(outcome_shares(piece.left), outcome_shares(piece.right))
    actual = difference.actual_piece or piece
    return Example(
        sender=formatting.format_sender(version, difference.packets, piece.fields),
        destination=formatting.format_destination(version, difference.destination, difference.packets, piece.fields),
        client=formatting.format_client(version, difference.client),
        left=tuple(_observed_outcomes(version, outcome_shares(actual.left))),
        right=tuple(_observed_outcomes(version, outcome_shares(actual.right))),
        left_rules=_rules(actual.left),
        right_rules=_rules(actual.right),
        left_decision=_decision(piece.left, piece.right, cause, files.left),
        right_decision=_decision(piece.right, piece.left, cause, files.right),
        trace=tuple(trace_arguments(version, difference, piece.fields, known)),
    )


def _decision(
    paths: Iterable[Path], other: Iterable[Path], cause: str, file_of_chain: FileOfChain
) -> DecidingRule | None:
    """Return the deciding rule of the first path whose outcome the other side does not have, else of the first path."""
    paths = tuple(paths)
    others = {path.outcome for path in other}
    path = next((path for path in paths if path.outcome not in others), next(iter(paths), None))
    return None if path is None else deciding_rule(path, cause, file_of_chain)


def _observed_outcomes(version: IpVersion, found: Shares) -> Iterator[ObservedOutcome]:
    for outcome, share in formatting.ordered_shares(found):
        endpoint = formatting.format_endpoint(version, outcome) if outcome.is_translated else ""
        source = formatting.format_source(version, outcome.source)
        yield ObservedOutcome(
            str(share),
            outcome.disposition.value,
            endpoint,
            source,
            outcome.seconds,
            outcome.reply,
            outcome.lost_mark,
            outcome.scheduler,
        )


def _rules(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return the rules that the packets of the first path hit, in order."""
    first = next(iter(paths), None)
    return tuple(f"{hit.chain}: {formatting.format_rule(hit.rule)}" for hit in rule_hits(first.trail)) if first else ()


def _uninterpreted_rules(difference: Difference) -> Iterator[UninterpretedRule]:
    for side, paths in (("left", difference.differing_piece.left), ("right", difference.differing_piece.right)):
        for path in paths:
            if path.outcome.disposition is Disposition.UNDECIDED and path.trail is not None:
                rule = path.trail.rule
                text = rule.text or " ".join(step.text for step in rule.steps if isinstance(step, Unknown))
                yield UninterpretedRule(side, path.trail.chain, rule.line, text)
