"""ChangeHistory: the last changes of Service ports and tables, and failed syncs, in bounded memory: ``knft history``.

docs/operations/status.md#history describes it. The work of each sync depends on what changed, not on the cluster.
"""

import threading
from collections import deque
from collections.abc import Iterable

from msgspec import Struct, structs

from knft.control.messages import Cause, EndpointChange, Entry, FirstSync, History, SyncFailure, TableChange, entry_time
from knft.decide.endpoints import categorize_endpoints
from knft.families import Family
from knft.model.endpoint import Endpoint, endpoint_key, endpoint_target
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort
from knft.serve.change_causes import EventFinder
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.change_origins import ChangeOrigins
from knft.sync.foreign_changes import ForeignChangeSummary
from knft.sync.observer import AuditResult, SyncObserver
from knft.sync.report import SyncReport
from knft.sync.service_events import ReceivedEvent, ServiceEvents, Target
from knft.sync.state import ServiceState

MAX_WEIGHT = 1000
"""How much is kept: an entry counts as one, and as one more for each endpoint that it lists. That is below 512 KiB."""
MAX_LISTED = 200
"""The most endpoints that an entry lists."""
MAX_TABLE_CHANGES = 50
"""How many changes of tables are kept, apart from the others, so that a program that changes them again and again does
not remove other entries."""
MAX_FAILURES = 50
"""How many periods of failed syncs are kept, apart from the others."""
MAX_ERROR_LENGTH = 500


class ChangeHistory(SyncObserver):
    """Records changes; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """Start without entries."""
        self._clock = clock
        self._lock = threading.Lock()
        self._changes: deque[EndpointChange | FirstSync] = deque()
        self._weight = 0
        self._dropped = 0
        self._table_changes: deque[TableChange] = deque()
        self._waiting: dict[Family, ChangeOrigins] = {}
        """The changes of quarantined Service ports."""
        self._synced: set[Family] = set()
        self._has_unrepaired: set[Family] = set()
        """The families whose table was changed, and not yet read back."""
        self._failures: deque[SyncFailure] = deque()
        """Failures that have ended."""
        self._failing: dict[Family, SyncFailure] = {}

    def read(self) -> History:
        """Return all entries; from any thread."""
        with self._lock:
            entries: list[Entry] = [*self._changes, *self._table_changes, *self._failures, *self._failing.values()]
            dropped = self._dropped
        return History(tuple(sorted(entries, key=entry_time)), dropped)

    def table_changed(self, family: Family, changes: ForeignChangeSummary) -> None:
        """Record changes by other programs."""
        self._add_table_change(family, str(changes), _unix_seconds(changes.first_at, self._clock()))

    def table_audited(self, family: Family, result: AuditResult) -> None:
        """Record what an audit found changed."""
        if result.differences:
            description = f"an audit found {result.differences} elements or chains changed"
            self._add_table_change(family, description, self._clock().unix_seconds)

    def _add_table_change(self, family: Family, description: str, at: float) -> None:
        change = TableChange(family.value, description, at)
        with self._lock:
            self._has_unrepaired.add(family)
            self._table_changes.append(change)
            if len(self._table_changes) > MAX_TABLE_CHANGES:
                self._table_changes.popleft()
                self._dropped += 1

    def sync_failed(self, family: Family, _seconds: float, error: str) -> None:
        """Record a failed sync; those that follow each other are one entry."""
        error, failing = error[:MAX_ERROR_LENGTH], self._failing.get(family)
        if failing is None:
            failing = SyncFailure(family.value, error, self._clock().unix_seconds)
        else:
            last_error = error if error != failing.error else ""
            failing = structs.replace(failing, syncs=failing.syncs + 1, last_error=last_error)
        with self._lock:
            self._failing[family] = failing

    def _end_failure(self, family: Family, at: float) -> None:
        with self._lock:
            self._failures.append(structs.replace(self._failing.pop(family), ended=at))
            if len(self._failures) > MAX_FAILURES:
                self._failures.popleft()
                self._dropped += 1

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Record the changes that are in force since this sync, and the end of failures."""
        family, now = report.family, self._clock()
        if family in self._failing:
            self._end_failure(family, now.unix_seconds)
        if family not in self._synced:
            self._synced.add(family)
            self._add([_first_sync(report, now)])
            if report.quarantined:
                self._waiting[family] = ChangeOrigins(dict.fromkeys(report.quarantined))
            return
        is_right = report.is_full and not report.repair.error and not report.repair.changed_again
        if is_right and family in self._has_unrepaired:
            self._record_repair(family, now.unix_seconds)
        waiting = self._waiting.pop(family, None)
        origins = waiting.merged_with(report.origins) if waiting is not None else report.origins
        in_force, refused = origins.split(report.quarantined)
        if report.quarantined:
            self._waiting[family] = refused
        self._add_all(in_force, state, report.committed, now)

    def _add_all(self, origins: ChangeOrigins, state: ServiceState, committed: float, now: Timestamp) -> None:
        """Add as many changes as the history keeps; the others count as dropped, so that the work is bounded."""
        names, added = origins.service_ports(), 0
        for position, name in enumerate(names):
            if max(position, added) >= MAX_WEIGHT:
                with self._lock:
                    self._dropped += len(names) - position
                return
            added += self._add(_endpoint_changes(name, origins, state, committed, now))

    def _record_repair(self, family: Family, at: float) -> None:
        with self._lock:
            self._has_unrepaired.discard(family)
            self._table_changes = deque(
                structs.replace(change, repaired=at)
                if change.family == family.value and change.repaired is None
                else change
                for change in self._table_changes
            )

    def _add(self, changes: Iterable[EndpointChange | FirstSync]) -> int:
        """Add changes, and return their weight."""
        added = 0
        with self._lock:
            for change in changes:
                self._changes.append(change)
                added += _weight(change)
            self._weight += added
            while self._weight > MAX_WEIGHT:
                self._weight -= _weight(self._changes.popleft())
                self._dropped += 1
        return added


def _weight(change: EndpointChange | FirstSync) -> int:
    return 1 + (len(change.gained) + len(change.lost) if isinstance(change, EndpointChange) else 0)


def _unix_seconds(monotonic: float, now: Timestamp) -> float:
    return now.unix_seconds - (now.monotonic - monotonic)


def _first_sync(report: SyncReport, now: Timestamp) -> FirstSync:
    return FirstSync(
        report.family.value,
        report.service_ports,
        report.elements_added,
        report.elements_removed,
        _unix_seconds(report.committed, now),
    )


class _EndpointsOfEvent(Struct):
    """The endpoints that one event gave a Service port, and took from it."""

    event: ReceivedEvent | None
    gained: list[Target] = []
    lost: list[Target] = []


def _endpoint_changes(
    name: ServicePortName, origins: ChangeOrigins, state: ServiceState, committed: float, now: Timestamp
) -> Iterable[EndpointChange]:
    """Yield the endpoints that new connections to a Service port reach since the sync, or no longer, by event."""
    port = origins.ports[name] if name in origins.ports else state.service_port(name)
    endpoints = origins.endpoints[name] if name in origins.endpoints else state.endpoints(name)
    before = _reachable(port, endpoints, state)
    after = _reachable(state.service_port(name), state.endpoints(name), state)
    events = origins.events.get(name.service) or ServiceEvents()
    finder = EventFinder(events, has_port_changed=name in origins.ports)
    found: dict[int, _EndpointsOfEvent] = {}
    for targets, is_gained in ((after - before, True), (before - after, False)):
        for target in sorted(targets):
            event = finder.find(target, is_gained=is_gained)
            of_event = found.setdefault(id(event), _EndpointsOfEvent(event))
            (of_event.gained if is_gained else of_event.lost).append(target)
    for of_event in found.values():
        yield _endpoint_change(name, state.node.family, of_event, committed=committed, now=now)


def _reachable(port: ServicePort | None, endpoints: tuple[Endpoint, ...], state: ServiceState) -> set[Target]:
    if port is None:
        return set()
    node = state.node
    return set(map(endpoint_target, categorize_endpoints(endpoints, port, node.name, node.zone).all_reachable))


def _endpoint_change(
    name: ServicePortName, family: Family, changed: _EndpointsOfEvent, *, committed: float, now: Timestamp
) -> EndpointChange:
    event, gained, lost = changed.event, changed.gained, changed.lost
    listed_lost = lost[:MAX_LISTED]
    listed_gained = gained[: MAX_LISTED - len(listed_lost)]
    return EndpointChange(
        service=str(name.service),
        port=name.port,
        protocol=name.protocol,
        family=family.value,
        gained=tuple(endpoint_key(*target) for target in listed_gained),
        lost=tuple(endpoint_key(*target) for target in listed_lost),
        gained_not_listed=len(gained) - len(listed_gained),
        lost_not_listed=len(lost) - len(listed_lost),
        cause=_cause(event, now) if event is not None else None,
        in_force=_unix_seconds(committed, now),
        seconds=max(0.0, committed - event.received) if event is not None else None,
    )


def _cause(event: ReceivedEvent, now: Timestamp) -> Cause:
    return Cause(
        event.kind,
        str(event.name),
        event.resource_version,
        event.is_deleted,
        event.trigger_time,
        _unix_seconds(event.received, now),
    )
