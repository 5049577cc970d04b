"""Formats the answer to ``knft status`` as text, the conclusion, process and IP families, or as one line."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from knft.cli.text_layout import format_seconds, wrapped
from knft.control.messages import AuditStatus, ConntrackStatus, FamilyStatus, LoopbackStatus, SourceStatus, Status
from knft.counts import format_count
from knft.explain.words import time_text
from knft.present.formatting import escape_invisible
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
    "unrepaired": "an audit found differences, and knft has not repaired the table yet",
}
"""Why not all rules of a family are in force, by its state."""

_NOT_AUDITED = {"left": "the table is left to an older version of knft", "waiting": "no sync has succeeded yet"}
"""Why a family is not audited, by its state."""

_Line = tuple[str, str]
"""A label and its text."""


class AuditConclusion(Struct, frozen=True):
    """What a requested audit found; ``is_equal`` says that each table was compared and has no difference."""

    text: str
    is_equal: bool


class Leftovers(Struct, frozen=True):
    """What kube-proxy left on this machine, a text for each mode, and why something could not be read."""

    found: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


NO_LEFTOVERS = Leftovers()


def audit_conclusion(status: Status, seconds: float) -> AuditConclusion:
    """Return what the audit found that was requested ``seconds`` before the status."""
    found = [f"{name}: {text}" for name, family in sorted(status.families.items()) if (text := _found(family, seconds))]
    return AuditConclusion(f"audit: {'; '.join(found) or 'no differences'}", not found)


def _found(family: FamilyStatus, seconds: float) -> str:
    """Return why a table is not known to be right, "" if it is."""
    audit = family.audit
    if audit is None or audit.age > seconds:
        return f"not compared: {_NOT_AUDITED.get(family.state, 'knft has not audited this table')}"
    if audit.error:
        return f"not compared: {audit.error}"
    if not audit.differences:
        return ""
    repair = "knft repairs the table" if _is_unrepaired(family) else "knft has repaired the table"
    return f"{_differences(audit)}; {repair}"


def _is_unrepaired(family: FamilyStatus) -> bool:
    """Return whether no successful sync began after an audit that found differences; the first one repairs them."""
    if family.audit is None or not family.audit.differences:
        return False
    if family.last_sync_age is None or family.last_sync_seconds is None:
        return True
    return family.last_sync_age + family.last_sync_seconds > family.audit.age


def format_status(
    status: Status,
    width: int | None,
    *,
    leftovers: Leftovers = NO_LEFTOVERS,
    audit: AuditConclusion | None = None,
    colours: bool = False,
) -> str:
    """Return the lines of a status, at most ``width`` columns wide; ``audit`` is what a requested audit found."""
    conclusion = _conclusion(status)
    conclusions = [(conclusion, _colour(status, conclusion))]
    if audit is not None:
        conclusions.insert(0, (audit.text, "green" if audit.is_equal else "yellow"))
    lines = [
        styled(line, f"bold {colour}") if colours else line
        for text, colour in conclusions
        for line in wrapped("", text, width, "  ")
    ]
    for label, text in (*_process(status), *_leftovers(leftovers)):
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
    problems, not_in_force = _lasting_problems(status), _not_in_force(status)
    if status.problem:
        return "; ".join([f"knft is not ready: {status.problem}", *problems])
    ready = f"knft is ready, with problems: {'; '.join(problems)}" if problems else "knft is ready"
    if problems or not_in_force:
        return "; ".join([ready, *not_in_force])
    return _ALL_WELL


def _lasting_problems(status: Status) -> list[str]:
    """Return what lasts that needs an operator."""
    problems = [f"{name}: {text}" for name, family in sorted(status.families.items()) for text in _problems(family)]
    return problems + ([_unread(status.source)] if status.source.problems else [])


def _unread(source: SourceStatus) -> str:
    """Return which resources cannot be watched, or that manifests cannot be read."""
    if source.unwatched_seconds:
        return f"cannot watch {', '.join(sorted(source.unwatched_seconds))} of the API server"
    return _UNREAD.get(source.kind, "")


def _not_in_force(status: Status) -> list[str]:
    """Return why rules are not in force yet; the other states are lasting problems."""
    return [
        f"{name}: {_NOT_IN_FORCE.get(state, state)}"
        for name, family in sorted(status.families.items())
        if (state := _state(family)) not in ("in force", "failing", "left")
    ]


def _state(family: FamilyStatus) -> str:
    """Return the state of a family: "unrepaired" instead of "in force" if an audit found differences that remain."""
    return "unrepaired" if family.state == "in force" and _is_unrepaired(family) else family.state


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
    if family.loopback is not None:
        yield from _loopback_problems(family.loopback)


def _loopback_problems(loopback: LoopbackStatus) -> Iterator[str]:
    if loopback.problem:
        yield "no NodePort served on loopback"
    elif loopback.failed.count:
        yield f"{format_count(loopback.failed.count, 'NodePort')} not served on loopback"


def format_summary(status: Status, leftovers: Leftovers = NO_LEFTOVERS) -> str:
    """Return one line for tables of many nodes, with tabs between its fields; problems are the last one."""
    problems, not_in_force = _lasting_problems(status), _not_in_force(status)
    health = "not ready" if status.problem else "problems" if problems else "ready"
    families = status.families.values()
    ages = [family.last_sync_age for family in families if family.last_sync_age is not None]
    reasons = [status.problem] if status.problem else []
    reasons += [*problems, *not_in_force, *(["leftovers of kube-proxy"] if leftovers.found else [])]
    fields = (
        status.node,
        status.knft,
        health,
        f"synced {format_seconds(min(ages))} ago" if ages else "not synced yet",
        f"{max((family.left_out.count for family in families), default=0)} left out",
        f"audit {_summarized_audits([family.audit for family in families])}",
        "; ".join(reasons),
    )
    return "\t".join(escape_invisible(field) for field in fields).rstrip() + "\n"


def _summarized_audits(audits: Sequence[AuditStatus | None]) -> str:
    """Return the oldest audit of the families, and the differences of all; an audit that failed comes first."""
    ended = [audit for audit in audits if audit is not None]
    if len(ended) < len(audits) or not ended:
        return "none yet"
    failed = [audit for audit in ended if audit.error]
    return _audit(
        failed[0]
        if failed
        else AuditStatus(max(audit.age for audit in ended), sum(audit.differences for audit in ended))
    )


def _process(status: Status) -> Iterator[_Line]:
    library = f"libnftables {status.libnftables or 'of unknown version'}"
    yield "version", f"knft {status.knft}, Python {status.python}, {library}, Linux {status.kernel}"
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


def _leftovers(leftovers: Leftovers) -> Iterator[_Line]:
    texts = [*leftovers.found, *(f"cannot look for kube-proxy's leftovers: {error}" for error in leftovers.errors)]
    for number, text in enumerate(texts or ["nothing of kube-proxy"]):
        yield "" if number else "leftovers", text


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
    if family.loopback is not None:
        problem = f"; {family.loopback.problem}" if family.loopback.problem else ""
        yield "  loopback", f"{format_count(family.loopback.listeners, 'NodePort')} served{problem}"
        failed = family.loopback.failed
        texts = [f"NodePort {number}: {why}" for number, why in failed.reasons.items()]
        yield from _listed("not served", failed.count, texts)
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
        "unrepaired": "the table differs, not repaired yet",
    }
    return f"{state.get(_state(family), family.state)}; {last}"


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
        return "none yet; the first is an hour after the start, or now with --audit"
    when = f"{format_seconds(audit.age)} ago"
    if audit.error:
        return f"failed {when}: {audit.error}"
    return f"{when}, {_differences(audit) if audit.differences else 'no differences'}"


def _differences(audit: AuditStatus) -> str:
    names = f" in {', '.join(audit.names)}" if audit.names else ""
    return f"{format_count(audit.differences, 'difference')}{names}"
