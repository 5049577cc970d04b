"""Daemon: passes objects to both families' states, syncs when a change is due, and logs and retries failures."""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType, TracebackType
from typing import Concatenate, ParamSpec

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.memory_errors import exit_if_out_of_memory
from knft.model.objects import ObjectChange, Service
from knft.model.unknown import ANYTHING, NOTHING_UNKNOWN, UnknownObjects
from knft.runner.bounded import BoundedFrequencyRunner, Intervals
from knft.runner.clock import Clock, MonotonicClock
from knft.sync.audit_schedule import AuditSchedule
from knft.sync.dispatch import Dispatcher, NodeInputs
from knft.sync.due_families import DueFamilies
from knft.sync.failure_log import FailureLog
from knft.sync.foreign_change_watch import ForeignChangeWatch
from knft.sync.foreign_objects import describe
from knft.sync.garbage_collection import freeze_and_trim, gc_disabled
from knft.sync.lasting_problems import LastingProblems, log_ended
from knft.sync.log_summary import summarize
from knft.sync.node_check import NodeCheck
from knft.sync.observer import NOT_COMPARED, AuditResult, SyncObserver, audit_result, overriding_methods
from knft.sync.older_version import OlderVersion
from knft.sync.proxier import UNUSED_CHAINS_INTERVAL_SECONDS, Proxier
from knft.sync.report import SyncReport
from knft.sync.service_warnings import ServiceWarnings
from knft.sync.state import ServiceState
from knft.sync.table_interface import TableInterface

log = logging.getLogger("knft")

POLL_SECONDS = 60.0
"""Longest delay until the thread that watches the worker process notices that knft stops."""
DEFAULT_INTERVALS = Intervals(0.02, 30.0, UNUSED_CHAINS_INTERVAL_SECONDS)

_Arguments = ParamSpec("_Arguments")

AuditTableOpener = Callable[[Family], AbstractContextManager[TableInterface]]
"""Opens a connection of its own to a family's table, so that the audit does not block syncs."""


class Daemon:
    """Runs both families' Proxiers; a failure in one family does not stop the other."""

    def __init__(
        self,
        proxiers: Sequence[Proxier],
        dispatcher: Dispatcher,
        open_audit_table: AuditTableOpener | None = None,
        observers: Sequence[SyncObserver] = (),
        *,
        node_check: NodeCheck | None = None,
        service_warnings: ServiceWarnings | None = None,
        older_versions: Mapping[Family, OlderVersion] = MappingProxyType({}),
        intervals: Intervals = DEFAULT_INTERVALS,
        clock: Clock | None = None,
    ) -> None:
        """Sync ``proxiers``, whose states the dispatcher updates.

        Without ``open_audit_table`` there are no audits, without ``node_check`` no warnings about the node's settings,
        and without ``service_warnings`` none about Services. A family that is not in ``older_versions`` never
        leaves its table to an older version of knft.
        """
        self._open_audit_table = open_audit_table
        self._observing = {
            method: overriding_methods(observers, method) for method in vars(SyncObserver).values() if callable(method)
        }
        """The methods of observers, by the method of SyncObserver that they override."""
        self._dispatch_lock = threading.Lock()
        self._proxiers = proxiers
        self._dispatcher = dispatcher
        self._node_check = node_check
        self._service_warnings = service_warnings
        self._problems = LastingProblems()
        self._failure_log = FailureLog()
        self._had_full_sync = False
        """Whether there was a full sync since the last ``freeze_and_trim``."""
        self._is_frozen = False
        """Whether ``freeze_and_trim`` was called before."""
        self._had_quarantine = False
        """Whether a sync has quarantined a Service port. Errors leave garbage in reference cycles."""
        self.audit_differences = Counter[Family]()
        self.audits = AuditSchedule(self.audit)
        self._due = DueFamilies([proxier.family for proxier in proxiers], intervals.maximum)
        self._runner = BoundedFrequencyRunner(self.sync_due, intervals, clock or MonotonicClock(), random.random)
        self.foreign_changes = ForeignChangeWatch(proxiers, self._request_sync, older_versions)

    @property
    def states(self) -> dict[Family, ServiceState]:
        """The state of every family. Other threads than the sync thread may call what says so."""
        return {proxier.family: proxier.state for proxier in self._proxiers}

    def hashed_service_port_counts(self) -> dict[Family, int]:
        """Return how many Service ports have tables of hashes; from any thread."""
        return {proxier.family: proxier.hashed_service_port_count() for proxier in self._proxiers}

    def element_count(self, family: Family) -> int | None:
        """Return how many elements a family's table has, None while a sync runs or after a failure; from any thread."""
        return next(proxier.element_count() for proxier in self._proxiers if proxier.family is family)

    def node_inputs(self) -> NodeInputs:
        """Return the node's objects and addresses; from any thread, without a lock."""
        return self._dispatcher.node_inputs()

    def services(self) -> tuple[Service, ...]:
        """Return all Services that this proxy handles; from any thread, without a lock.

        The order changes only when ``service_removals`` does; new Services are the last ones.
        """
        return self._service_warnings.services() if self._service_warnings is not None else ()

    def service_removals(self) -> int:
        """Return how many Services were deleted since the start; from any thread."""
        return self._service_warnings.removals() if self._service_warnings is not None else 0

    def handle(self, changes: Iterable[ObjectChange]) -> None:
        """Handle changed objects, and queue a sync if one is due; from any thread."""
        received = time.monotonic()
        with self._dispatch_lock:
            due = self._dispatcher.handle(changes, received)
        if due:
            self._queue_sync(due)

    def hold_removals(self, unknown: UnknownObjects = ANYTHING) -> None:
        """Remove nothing that the first sync finds in the kernel and may belong to ``unknown`` objects.

        Call it before the first sync.
        """
        for proxier in self._proxiers:
            proxier.hold_removals(unknown)

    def release_removals(self, unknown: UnknownObjects = NOTHING_UNKNOWN) -> None:
        """Queue a sync that removes what no object requires, and what does not belong to ``unknown`` objects.

        Any thread may call it, after the last objects were handled. Raises what ``check_node`` raises, and then
        releases nothing.
        """
        if not unknown.includes_node:
            self._require_no_loss()
        self.hold_removals(unknown)
        self._queue_sync(self.states)

    def update_local_addresses(self, local_addresses: frozenset[str]) -> None:
        """Replace the addresses of the machine's interfaces, and queue a sync if one is due; from any thread."""
        with self._dispatch_lock:
            due = self._dispatcher.update_local_addresses(local_addresses)
        if due:
            self._queue_sync(due)

    def _queue_sync(self, families: Collection[Family]) -> None:
        """Request a sync of families that have changes, and tell the observers."""
        for proxier in self._proxiers:
            if proxier.family in families and not self.foreign_changes.is_left(proxier.family):
                self._notify(SyncObserver.sync_queued, proxier.family)
        self._due.request(families)
        self._runner.request()

    def _request_sync(self) -> None:
        """Request a sync of all families."""
        self._due.request(self.states)
        self._runner.request()

    def _own_proxiers(self) -> list[Proxier]:
        """Return the proxiers whose tables are not left to an older version of knft."""
        return [proxier for proxier in self._proxiers if not self.foreign_changes.is_left(proxier.family)]

    def _notify(
        self,
        method: Callable[Concatenate[SyncObserver, _Arguments], None],
        *arguments: _Arguments.args,
        **keywords: _Arguments.kwargs,
    ) -> None:
        for observer, observe in self._observing[method]:
            try:
                observe(*arguments, **keywords)
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                exit_if_out_of_memory(error)
                _log_bug(observer, error)

    def check_node(self) -> None:
        """Check the node's settings before the first sync.

        Raises NodeMismatchError if the first sync would remove rules or drop traffic because of a mistake in them, and
        KernelError if the tables cannot be read. While removals are held, ``release_removals`` checks the removals.
        """
        if self._node_check is not None:
            with self._dispatch_lock:
                self._node_check.require_usable_service_cidrs()
        if not any(proxier.unknown_objects.includes_node for proxier in self._proxiers):
            self._require_no_loss()
        if self._node_check is not None:
            with self._dispatch_lock:
                self._node_check.log_unknown_name()

    def _require_no_loss(self) -> None:
        if self._node_check is not None:
            with self._dispatch_lock:
                self._node_check.require_no_loss()

    def watch_services(self, stop: threading.Event) -> None:
        """Log Services that no slice serves for a minute, until ``stop`` is set. Needs its own thread."""
        if self._service_warnings is not None:
            self._service_warnings.run(stop)

    def log_service_problems(self) -> None:
        """Log Services that no slice serves now, because no other object is going to be handled."""
        if self._service_warnings is not None:
            self._service_warnings.log_due(time.monotonic(), grace=0.0)

    def _log_node_problems(self) -> None:
        if self._node_check is not None:
            with self._dispatch_lock:
                self._node_check.log_new_problems()

    def sync_due(self) -> bool:
        """Sync the families that are due, as ``sync`` does."""
        return self._sync(self._due.take(time.monotonic()))

    def sync(self) -> bool:
        """Sync every family until all its changes are in force, or its sync fails; return whether all succeeded.

        A family whose table is left to an older version of knft is skipped; its changes wait.
        Changes that arrive meanwhile are part of the next sync of their family, so they wait for few rules only.
        """
        return self._sync(self.states)

    def _sync(self, families: Collection[Family]) -> bool:
        with _BugsLogged("the check of the node"):
            self._log_node_problems()
        self._report_left_tables()
        proxiers, all_succeeded = [each for each in self._own_proxiers() if each.family in families], True
        while True:
            succeeded = self._sync_families(proxiers)
            all_succeeded &= len(succeeded) == len(proxiers)
            proxiers = [proxier for proxier in succeeded if not self.foreign_changes.is_left(proxier.family)]
            if all(proxier.is_complete for proxier in proxiers):
                return all_succeeded

    def _report_left_tables(self) -> None:
        """Tell the observers which tables are left, each time: changes may have been queued meanwhile."""
        for proxier in self._proxiers:
            if self.foreign_changes.is_left(proxier.family):
                self._notify(SyncObserver.table_left, proxier.family)

    def _sync_families(self, proxiers: Sequence[Proxier]) -> list[Proxier]:
        """Sync some families; return those whose sync succeeded."""
        for proxier in proxiers:
            with _BugsLogged("the check of foreign changes"):
                changes = self.foreign_changes.begin_check(proxier.family)
                if changes is not None:
                    self._notify(SyncObserver.table_changed, proxier.family, changes)
        with gc_disabled():
            succeeded = [proxier for proxier in proxiers if self._sync_one(proxier)]
            if self._had_full_sync:
                self._had_full_sync = False
                with _BugsLogged("the garbage collection"):
                    # Before the collector is enabled, which would collect once more.
                    is_clean = len(succeeded) == len(proxiers) and not self._had_quarantine
                    freeze_and_trim(collect=self._is_frozen or not is_clean)
                    self._is_frozen = True
        return succeeded

    def _sync_one(self, proxier: Proxier) -> bool:
        report = self._sync_and_report(proxier)
        is_settled = report is not None and report.next_sync_within is None and not proxier.is_full_sync_planned
        self._due.record_sync(proxier.family, time.monotonic(), is_settled=is_settled)
        with _BugsLogged("the check of foreign changes"):
            self.foreign_changes.finish_check(proxier.family)
        return report is not None

    def _sync_and_report(self, proxier: Proxier) -> SyncReport | None:
        """Sync a family; log and report the result. Returns None if the sync failed."""
        self._notify(SyncObserver.sync_started, proxier.family)
        started = time.monotonic()
        try:
            report = proxier.sync()
        except KernelError as error:
            reason = str(error)
            self._failure_log.failed(proxier.family, error, time.monotonic())
        except Exception as error:
            exit_if_out_of_memory(error)
            reason = f"unexpected error, please report this: {error!r}"
            # A bug in knft must not end the loop: the rules stay, and the next sync is a full one.
            log.exception("%s: sync failed unexpectedly; please report this", proxier.family.value)
        else:
            self._failure_log.succeeded(proxier.family, time.monotonic())
            self._record_success(report)
            self._notify(SyncObserver.sync_succeeded, report, proxier.state)
            return report
        seconds = time.monotonic() - started
        log.debug("%s: the failed sync took %.1f ms", proxier.family.value, seconds * 1e3)
        self._notify(SyncObserver.sync_failed, proxier.family, seconds, reason)
        return None

    def _record_success(self, report: SyncReport) -> None:
        self._had_full_sync |= report.is_full
        self._had_quarantine |= bool(report.quarantined)
        if report.next_sync_within is not None:
            self._runner.request_within(report.next_sync_within)
        with _BugsLogged("the log of a sync"):
            log.log(logging.INFO if report.is_full else logging.DEBUG, "%s", report)
            if report.changed_service_ports and log.isEnabledFor(logging.DEBUG):
                log.debug("%s: updated the rules of %s", report.family.value, report.changed_names())
            self._log_repair(report)
            self._log_new_problems(report)

    def _log_repair(self, report: SyncReport) -> None:
        """Log what was removed from the table, and that the table is right; both were found by reading it back."""
        if report.repair.removed_unused:
            names = describe(report.repair.removed_unused)
            log.info("%s: removed objects of other options: %s", report.family.value, names)
        removed = f"; it removed {describe(report.repair.removed)}" if report.repair.removed else ""
        if report.repair.repaired:
            log.warning("%s: knft repaired the table and read it back%s", report.family.value, removed)
        elif removed:
            log.warning("%s: knft repairs the table%s", report.family.value, removed)

    def _log_new_problems(self, report: SyncReport) -> None:
        """Log the problems that began and ended since the previous report."""
        if report.newly_losing_claims:
            summary = summarize(report.newly_losing_claims, "claims to frontends lose")
            log.warning("%s: %s", report.family.value, summary)
        log_ended(report.ended_losing_claims, f"{report.family.value}: ")
        problems = {
            f"Service port {name} is quarantined; knft retries it: {why}" for name, why in report.quarantined.items()
        }
        problems |= {f"Service {name} is too large and is left out: {why}" for name, why in report.too_large.items()}
        if report.orphan_error:
            problems.add(f"stale objects could not be removed; knft retries the removal: {report.orphan_error}")
        if report.repair.error:
            problems.add(f"{report.repair.error}; knft retries the repair")
        self._problems.update(problems, report.family.value)

    def watch_worker_process(self, library: WorkerProcess, stop: threading.Event) -> None:
        """Queue a sync if the idle libnftables worker process dies, until ``stop`` is set. Needs its own thread.

        Until that sync, the table has no owner, and any process may change it.
        """
        while not stop.is_set():
            died = library.replace_if_died_within(POLL_SECONDS)
            if stop.is_set():  # The shutdown of knft closes the library.
                return
            if died:
                log.warning("the idle libnftables worker process died and was replaced")
                self._request_sync()
            else:
                stop.wait(1.0)

    def audit(self) -> bool:
        """Compare every family's table with what was committed, and queue a sync if they differ; from any thread.

        Returns False if a table was not compared, because a running or failed sync prevented it or the table could not
        be read, which is logged. The caller repeats the audit soon.
        """
        if self._open_audit_table is None:
            return True
        compared = [self._audit_table(proxier, self._open_audit_table) for proxier in self._own_proxiers()]
        return all(compared)

    def _audit_table(self, proxier: Proxier, open_audit_table: AuditTableOpener) -> bool:
        """Audit one family; return False if its table was not compared."""
        family = proxier.family.value
        try:
            with open_audit_table(proxier.family) as table:
                count = proxier.audit(table, lambda found: self._report_audit(proxier.family, audit_result(found)))
        except KernelError as error:
            log.warning("%s: audit failed: %s", family, error)
            self._report_audit(proxier.family, AuditResult(error=str(error)))
            return False
        if count is None:
            self._report_audit(proxier.family, AuditResult(error=NOT_COMPARED))
        elif count:
            self.audit_differences[proxier.family] += count
            log.warning(
                "%s: audit: %d elements or chains differ from what was committed; repairing them", family, count
            )
            self._request_sync()
        return count is not None

    def _report_audit(self, family: Family, result: AuditResult) -> None:
        self._notify(SyncObserver.table_audited, family, result)

    def run(self, stop: threading.Event) -> None:
        """Sync now and after every change, until ``stop`` is set. Call this once."""
        for proxier in self._proxiers:
            self._notify(SyncObserver.loop_started, proxier.family)
        self._runner.request()

        def stop_runner() -> None:
            stop.wait()
            self._runner.stop()
            self.audits.stop()

        threading.Thread(target=stop_runner, name="stop", daemon=True).start()
        threading.Thread(target=self.audits.run, args=[stop], name="audit", daemon=True).start()
        self._runner.loop()


class _BugsLogged(AbstractContextManager[None]):
    """Logs an unexpected error of what is done beside a sync: a bug in that must not end the loop.

    A class, because each sync enters dozens, and a generator takes three times as long.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        exit_if_out_of_memory(error)
        _log_bug(self._name, error)
        return True


def _log_bug(name: str, error: Exception) -> None:
    log.error("%s failed unexpectedly; please report this", name, exc_info=error)
