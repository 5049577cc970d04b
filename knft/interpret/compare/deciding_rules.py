"""Finds the rule that decides the outcome of packets, as far as the outcome differs between two sides."""

from collections.abc import Callable

from msgspec import Struct

from knft.interpret.outcomes import Disposition, Path, RuleHit, rule_hits
from knft.interpret.rules import AddToSet, DnatMapLookup, SetMark, Step, Translate
from knft.interpret.walk.servers import IPVS_CHAIN

FileOfChain = Callable[[str], str]
"""Returns the file or command whose output has a chain, or the name of the side if its rules were rendered."""


class DecidingRule(Struct, frozen=True):
    """A rule, its chain, its line number (0 if the capture has no lines), and the file or command of the capture."""

    file: str
    chain: str
    line: int
    text: str


def format_decision(decision: DecidingRule) -> str:
    """Return a deciding rule with its file, line and chain."""
    place = f"{decision.file}, line {decision.line}" if decision.line else decision.file
    return f"{place}, chain {decision.chain}: {decision.text}" if place else f"{decision.chain}: {decision.text}"


def deciding_rule(path: Path, cause: str, file_of_chain: FileOfChain) -> DecidingRule | None:
    """Return the rule that decides the property in which the sides differ (a cause of ``report``); None without one.

    For packets that are not delivered it is the last rule that they hit.
    """
    hits = rule_hits(path.trail)
    hit = hits[-1] if hits and path.outcome.disposition is not Disposition.DELIVERED else _last(hits, cause)
    if hit is None:
        return None
    return DecidingRule(file_of_chain(hit.chain), hit.chain, hit.rule.line, hit.rule.text)


def _last(hits: list[RuleHit], cause: str) -> RuleHit | None:
    """Return the last hit whose rule decides about the cause, else the one that chooses the endpoint."""
    for decides in (_DECIDES.get(cause, _chooses_endpoint), _chooses_endpoint):
        for hit in reversed(hits):
            if hit.chain == IPVS_CHAIN and decides is not _changes_source:
                return hit
            if any(map(decides, hit.rule.steps)):
                return hit
    return None


def _chooses_endpoint(step: Step) -> bool:
    return isinstance(step, DnatMapLookup) or (isinstance(step, Translate) and step.kind == "dnat")


def _changes_source(step: Step) -> bool:
    return isinstance(step, Translate) and step.kind == "snat"


def _remembers_client(step: Step) -> bool:
    return isinstance(step, AddToSet)


def _overwrites_mark(step: Step) -> bool:
    return isinstance(step, SetMark) and bool(~(step.keep | step.flip) & 0xFFFFFFFF)


_DECIDES: dict[str, Callable[[Step], bool]] = {
    "masquerade": _changes_source,
    "affinity": _remembers_client,
    "mark": _overwrites_mark,
}
"""The steps that decide, by cause. For other causes, the rule that chooses the endpoint decides."""
