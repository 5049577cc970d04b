"""Formats the answer to ``knft status`` as text: the conclusion, then the process, then each IP family."""

from collections.abc import Iterator, Sequence

from knft.cli.text_layout import format_seconds, wrapped
from knft.control.messages import AuditStatus, ConntrackStatus, FamilyStatus, SourceStatus, Status
from knft.counts import format_count
from knft.explain.words import time_text
from knft.present.layout import styled

_LABEL_WIDTH = 14
_INDENT = " " * _LABEL_WIDTH
_ALL_WELL = "knft is ready and all rules are in force"

_UNREAD = {
    "API server": "not all objects of the API server can be watched",
    "manifests": "not all manifests can be read",
}
_NOT_IN_FORCE = {
    "waiting": "no sync has succeeded yet",
    "pending": "changes wait for a sync",
    "changed": "another program has changed the table, and knft has not checked it yet",
}
"""Why not all rules of a family are in force, by its state."""

_Line = tuple[str, str]
"""A label and its text."""


def format_status(status: Status, width: int | None, *, colours: bool = False) -> str:
    """Return the lines of a status, at most ``width`` columns wide."""
    conclusion = _conclusion(status)
    lines = [
        styled(line, f"bold {_colour(status, conclusion)}") if colours else line
        for line in wrapped("", conclusion, width, "  ")
    ]
    for label, text in _process(status):
        lines += wrapped(f"{label:<{_LABEL_WIDTH}}", text, width, _INDENT)
    for name, family in sorted(status.families.items()):
        lines.append("")
        for label, text in _family(name, family):
            lines += wrapped(f"{label:<{_LABEL_WIDTH}}", text, width, _INDENT)
    return "\n".join(lines) + "\n"


def _colour(status: Status, conclusion: str) -> str:
    if status.problem:
        return "red"
    return "green" if conclusion == _ALL_WELL else "yellow"


def _conclusion(status: Status) -> str:
    """Return whether knft is ready, what lasts that needs an operator, and why rules are not in force yet."""
    problems = [f"{name}: {text}" for name, family in sorted(status.families.items()) for text in _problems(family)]
    problems += [_UNREAD.get(status.source.kind, "")] if status.source.problems else []
    if status.problem:
        return "; ".join([f"knft is not ready: {status.problem}", *problems])
    # The other states are problems.
    not_in_force = [
        f"{name}: {_NOT_IN_FORCE.get(family.state, family.state)}"
        for name, family in sorted(status.families.items())
        if family.state not in ("in force", "failing", "left")
    ]
    ready = f"knft is ready, with problems: {'; '.join(problems)}" if problems else "knft is ready"
    if problems or not_in_force:
        return "; ".join([ready, *not_in_force])
    return _ALL_WELL


def _problems(family: FamilyStatus) -> Iterator[str]:
    if family.state == "left":
        yield "the table is left to an older version of knft"
    if family.state == "failing":
        yield "the last sync failed"
    if family.quarantined.count:
        yield f"{format_count(family.quarantined.count, 'quarantined Service port')}"
    if family.left_out.count:
        yield f"{format_count(family.left_out.count, 'Service')} left out"
    if family.removal_error:
        yield "stale objects cannot be removed"
    if family.repair_error:
        yield "the table cannot be repaired"


def _process(status: Status) -> Iterator[_Line]:
    yield "version", f"knft {status.knft}, Python {status.python}, Linux {status.kernel}"
    yield "process", f"pid {status.pid}, up {format_seconds(status.uptime)}, since {time_text(status.started)}"
    addresses = [family.node_address for _, family in sorted(status.families.items()) if family.node_address]
    yield "node", f"{status.node}, {', '.join(addresses) or 'no address known'}"
    yield "mode", status.mode
    yield from _source(status.source)
    yield "Services", f"{status.services}"
    yield "conntrack", _conntrack(status.conntrack)


def _source(source: SourceStatus) -> Iterator[_Line]:
    if source.files:
        counts = ", ".join(f"{count} {state}" for state, count in source.files.items())
        yield source.kind, f"{source.name}: {counts}"
    else:
        yield source.kind, f"{source.name}, {_connection(source)}"
    for problem in source.problems:
        yield "", problem


def _connection(source: SourceStatus) -> str:
    heard = "" if source.last_message_age is None else f"; last heard {format_seconds(source.last_message_age)} ago"
    if source.problems:
        longest = max(source.unwatched_seconds.values(), default=None)
        since = "" if longest is None else f" for {format_seconds(longest)}"
        return f"with problems{since}{heard}"
    return f"not listed yet: {', '.join(source.unlisted)}" if source.unlisted else f"connected{heard}"


def _conntrack(conntrack: ConntrackStatus) -> str:
    if conntrack.entries is None or conntrack.maximum is None:
        return "unknown: cannot read nf_conntrack_count"
    share = 100 * conntrack.entries / conntrack.maximum if conntrack.maximum else 0.0
    return f"{conntrack.entries} of at most {conntrack.maximum} entries ({share:.1f} %)"


def _family(name: str, family: FamilyStatus) -> Iterator[_Line]:
    yield name, _sync(family)
    yield "  pending", _pending(family)
    elements = "unknown, a sync runs or failed" if family.elements is None else str(family.elements)
    counts = (format_count(family.service_ports, "Service port"), format_count(family.endpoints, "endpoint"))
    yield "  programmed", f"{', '.join(counts)}; elements: {elements}"
    for label, problems in (("quarantined", family.quarantined), ("left out", family.left_out)):
        yield from _listed(label, problems.count, [f"{name}: {why}" for name, why in problems.reasons.items()])
    yield from _listed("contested", family.contested.count, family.contested.texts)
    if family.removal_error:
        yield "  stale", f"the kernel refuses to remove stale objects: {family.removal_error}"
    if family.repair_error:
        yield "  repair", family.repair_error
    yield "  foreign", _foreign(family)
    yield "  audit", _audit(family.audit)


def _sync(family: FamilyStatus) -> str:
    if family.last_sync_age is None or family.last_sync_seconds is None or family.last_sync is None:
        last = "no sync has succeeded yet"
    else:
        kind = "full" if family.last_sync_is_full else "partial"
        last = (
            f"last sync {format_seconds(family.last_sync_age)} ago ({time_text(family.last_sync)}), {kind}, in "
            f"{format_seconds(family.last_sync_seconds)}"
        )
    state = {
        "left": "left to an older version of knft",
        "failing": f"failing: {family.sync_error}",
        "changed": "changed by another program, not checked yet",
    }
    return f"{state.get(family.state, family.state)}; {last}"


def _pending(family: FamilyStatus) -> str:
    if family.pending_seconds is None and not family.services_pending and not family.endpoint_changes_pending:
        return "none"
    since = f", for {format_seconds(family.pending_seconds)}" if family.pending_seconds is not None else ""
    if not family.services_pending and not family.endpoint_changes_pending:
        return f"a sync is queued{since}"
    services = format_count(family.services_pending, "Service")
    return f"{services}, {format_count(family.endpoint_changes_pending, 'EndpointSlice change')}{since}"


def _listed(label: str, count: int, texts: Sequence[str]) -> Iterator[_Line]:
    if not count:
        return
    yield f"  {label}", str(count)
    for text in texts:
        yield "", text
    if count > len(texts):
        yield "", f"and {count - len(texts)} more"


def _foreign(family: FamilyStatus) -> str:
    if not family.foreign_changes:
        return "no changes by other programs"
    text = f"{format_count(family.foreign_changes, 'change')} by other programs"
    if family.last_foreign_change_age is not None:
        text += f"; the last one {format_seconds(family.last_foreign_change_age)} ago: {family.last_foreign_change}"
    if family.unchecked_change:
        text += f"; not checked yet: {family.unchecked_change}"
    return text + (f"; the next check waits {format_seconds(family.check_delay)}" if family.check_delay else "")


def _audit(audit: AuditStatus | None) -> str:
    if audit is None:
        return "none yet; the first is an hour after the start"
    when = f"{format_seconds(audit.age)} ago"
    if audit.error:
        return f"failed {when}: {audit.error}"
    return f"{when}, {format_count(audit.differences, 'difference') if audit.differences else 'no differences'}"
