"""Reads the answer to ``knft status`` from the objects that already have its values; loaded at the first request."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

import knft
from knft.control.messages import (
    MAX_NAMED,
    AuditStatus,
    ConntrackStatus,
    FamilyStatus,
    LoopbackStatus,
    LosingClaims,
    NamedProblems,
    SourceStatus,
    Status,
)
from knft.errors import KnftError
from knft.families import Family
from knft.kernel.conntrack_usage import conntrack_entries, conntrack_maximum
from knft.kernel.libnftables_version import libnftables_version
from knft.serve.last_syncs import LastSyncs
from knft.serve.pages import MODE
from knft.serve.proxy_health import ProxyHealth
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.daemon import Daemon
from knft.sync.state import ServiceState

if TYPE_CHECKING:
    from knft.forwarder.forwarder import Forwarder


class StatusSources(Struct, frozen=True):
    """The objects that have the values of a status."""

    node_name: str
    started: Timestamp
    clock: Clock
    daemon: Daemon
    health: ProxyHealth
    last_syncs: LastSyncs
    source: Callable[[], SourceStatus]
    forwarders: "Mapping[Family, Forwarder]" = MappingProxyType({})
    """What serves NodePorts on loopback addresses, by the families in which it does."""


def read_status(sources: StatusSources) -> Status:
    """Return the status; iterates over all Services, in another thread than syncs."""
    now, states = sources.clock(), sources.daemon.states
    names = {name.service for state in states.values() for name in state.service_port_names()}
    return Status(
        knft=knft.__version__,
        python=platform.python_version(),
        libnftables=_libnftables_version(),
        kernel=os.uname().release,
        mode=MODE,
        node=sources.node_name,
        pid=os.getpid(),
        started=sources.started.unix_seconds,
        uptime=now.monotonic - sources.started.monotonic,
        problem=sources.health.readiness_problem(),
        source=sources.source(),
        services=len(names),
        families={family.value: _family_status(sources, family, state, now) for family, state in states.items()},
        conntrack=ConntrackStatus(conntrack_entries(), conntrack_maximum()),
    )


@cache
def _libnftables_version() -> str:
    """Return the version of libnftables, "" if it cannot be read; only read at the first request."""
    try:
        return libnftables_version()
    except (KnftError, OSError):
        return ""


def _family_status(sources: StatusSources, family: Family, state: ServiceState, now: Timestamp) -> FamilyStatus:
    daemon, last = sources.daemon, sources.last_syncs.syncs.get(family)
    changed_at, changes = sources.last_syncs.table_changes.get(family, (None, None))
    counts = state.tracker_counts()
    return FamilyStatus(
        state=family_state(sources, family),
        node_address=state.latest_node.node_ip,
        last_sync=last.ended.unix_seconds if last is not None else None,
        last_sync_age=now.monotonic - last.ended.monotonic if last is not None else None,
        last_sync_seconds=last.seconds if last is not None else None,
        last_sync_is_full=last.is_full if last is not None else None,
        pending_seconds=sources.health.pending_seconds(family),
        sync_error=sources.last_syncs.errors.get(family, ""),
        services_pending=counts.services_pending,
        endpoint_changes_pending=counts.endpoint_changes_pending,
        service_ports=state.service_port_count(),
        endpoints=state.endpoint_count(),
        elements=daemon.element_count(family),
        quarantined=_named(last.quarantined.items()) if last is not None else NamedProblems(),
        left_out=_named(last.too_large.items()) if last is not None else NamedProblems(),
        contested=_losing_claims(state, last.losing_claim_count) if last is not None else LosingClaims(),
        removal_error=last.orphan_error if last is not None else "",
        repair_error=last.repair_error if last is not None else "",
        foreign_changes=daemon.foreign_changes.counts[family],
        last_foreign_change=str(changes) if changes is not None else "",
        last_foreign_change_age=now.monotonic - changed_at.monotonic if changed_at is not None else None,
        unchecked_change=str(daemon.foreign_changes.unchecked(family) or ""),
        check_delay=daemon.foreign_changes.check_delays().get(family, 0.0),
        audit=_audit_status(sources.last_syncs, family, now),
        loopback=_loopback_status(sources.forwarders.get(family), family),
    )


def _loopback_status(forwarder: "Forwarder | None", family: Family) -> LoopbackStatus | None:
    if forwarder is None:
        return None
    failed = [each for each in forwarder.report.failed if each.family == family.value]
    return LoopbackStatus(
        forwarder.listener_count(family),
        _named((f"{each.port} of {each.service}", each.reason) for each in failed),
        forwarder.problem_in(family),
    )


def family_state(sources: StatusSources, family: Family) -> str:
    """Return the state of a family (``FamilyStatus``)."""
    if sources.daemon.foreign_changes.is_left(family):
        return "left"
    if sources.last_syncs.errors.get(family):
        return "failing"
    if family not in sources.last_syncs.syncs:
        return "waiting"
    if sources.daemon.foreign_changes.unchecked(family) is not None:
        return "changed"
    return "in force" if sources.health.pending_seconds(family) is None else "pending"


def _named(problems: Iterable[tuple[object, str]]) -> NamedProblems:
    found = sorted((str(name), why) for name, why in problems)
    return NamedProblems(len(found), dict(found[:MAX_NAMED]))


def _losing_claims(state: ServiceState, count: int) -> LosingClaims:
    # The sync thread may change the claims meanwhile: the count is right, and the log names them, too.
    with suppress(RuntimeError, KeyError):
        return LosingClaims(count, tuple(map(str, state.losing_claims()[:MAX_NAMED])) if count else ())
    return LosingClaims(count)


def _audit_status(last_syncs: LastSyncs, family: Family, now: Timestamp) -> AuditStatus | None:
    if family not in last_syncs.audits:
        return None
    ended, result = last_syncs.audits[family]
    return AuditStatus(now.monotonic - ended.monotonic, result.differences, result.error, result.names)
