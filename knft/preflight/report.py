"""The result of ``knft preflight`` as a value: its JSON output; ``preflight.schema.json`` is generated from it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from knft.preflight.facts import Unread

State = Literal["problem", "warning", "not checked", "ok"]
Verdict = Literal["ready", "not ready", "undecided"]
PointName = Literal[
    "kernel",
    "libnftables",
    "nft of the host",
    "base chains",
    "kube-proxy",
    "configuration",
    "conntrack",
    "packet mark",
    "node",
    "comparison",
    "connections",
]
STATES: tuple[State, ...] = ("problem", "warning", "not checked", "ok")
"""The states, worst first."""
_MAX_NAMED = 2
"""How many points the summary names, so that it fits a line."""


class Finding(Struct, frozen=True):
    """What a check found, and what to do about it, empty if nothing.

    ``failed`` tells that the kernel, a program or the API server refused a request: the state is then ``not checked``.
    """

    state: State
    text: str
    remedy: str = ""
    failed: bool = False


class Point(Struct, frozen=True):
    """A subject with its findings; ``state`` is the worst of theirs, in the order problem, warning, not checked, ok."""

    name: PointName
    state: State
    findings: tuple[Finding, ...]


class Preflight(Struct, frozen=True):
    """Whether the node is ready for knft.

    ``verdict`` is ``not ready`` if there is a problem, else ``undecided`` if a check failed, else ``ready``.
    ``summary`` is the first line of the text. ``warnings`` and ``problems`` count findings. ``version`` is the version
    of this format.
    """

    verdict: Verdict
    summary: str
    node: str
    warnings: int
    problems: int
    points: tuple[Point, ...]
    version: int = 1


def not_checked(subject: str, found: Unread) -> Finding:
    """Return the finding for something that was not read."""
    text = f"{subject}: {found.reason}" if found.failed else found.reason
    return Finding("not checked", text, found.remedy, failed=found.failed)


def make_point(name: PointName, findings: Iterable[Finding]) -> Point:
    """Return a point with its findings, worst first."""
    ordered = tuple(sorted(findings, key=lambda finding: STATES.index(finding.state)))
    return Point(name, ordered[0].state, ordered)


def conclude(node: str, points: tuple[Point, ...]) -> Preflight:
    """Return the result with its verdict."""
    findings = [finding for point in points for finding in point.findings]
    problems = sum(finding.state == "problem" for finding in findings)
    warnings = sum(finding.state == "warning" for finding in findings)
    failures = sum(finding.failed for finding in findings)
    verdict: Verdict = "not ready" if problems else "undecided" if failures else "ready"
    if problems:
        names = _names(points, lambda finding: finding.state == "problem")
        summary = f"not ready: {_count(problems, 'problem')}{_where(names)}"
    elif failures:
        names = _names(points, lambda finding: finding.failed)
        summary = f"undecided: {_count(failures, 'check')} failed{_where(names)}"
    else:
        summary = _ready(warnings, _names(points, lambda finding: finding.state == "not checked"))
    return Preflight(verdict, summary, node, warnings, problems, points)


def _names(points: Iterable[Point], is_counted: Callable[[Finding], bool]) -> list[PointName]:
    """Return the names of the points with such findings."""
    return [point.name for point in points if any(map(is_counted, point.findings))]


def _where(names: Sequence[PointName]) -> str:
    return f", in {' and '.join(names)}" if len(names) <= _MAX_NAMED else f", the first in {names[0]}"


def _ready(warnings: int, unchecked: Sequence[PointName]) -> str:
    """Return the summary without problems; ``unchecked`` are the points for which input was missing."""
    with_warnings = f", with {_count(warnings, 'warning')}" if warnings else ""
    if unchecked:
        are_named = len(unchecked) <= _MAX_NAMED
        subject = " and ".join(unchecked) if are_named else f"{len(unchecked)} points"
        were = "was" if len(unchecked) == 1 else "were"
        return f"ready{with_warnings}, as far as checked: {subject} {were} not checked"
    return f"ready{with_warnings}" if warnings else "ready to switch"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
