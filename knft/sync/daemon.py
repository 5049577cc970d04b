"""The daemon: sources feed the families' states, the runner says when, a failure is reported and tried again."""

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange, ForeignChangeMonitor
from knft.kernel.process import LibraryProcess
from knft.model.objects import ObjectChange
from knft.runner.bounded import BoundedFrequencyRunner, Intervals
from knft.runner.clock import Clock
from knft.sync.dispatch import Dispatcher
from knft.sync.garbage_collection import freeze_and_trim, gc_disabled
from knft.sync.invalidation import Invalidation
from knft.sync.observer import SyncObserver
from knft.sync.proxier import STICKY_GC_SECONDS, Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from knft.sync.table_port import TablePort

log = logging.getLogger("knft")

RECEIVE_TIMEOUT_SECONDS = 60.0
REOPEN_SECONDS = 10.0
"""How long it is until notifications that failed are tried again."""
MAX_LOGGED_NAMES = 5
"""So many chains and sets that somebody else changed are named in one line."""
AUDIT_SECONDS = 3600.0
"""How often the kernel's tables are compared with what was committed, beside the syncs."""
AUDIT_RETRY_SECONDS = 120.0
"""How long after an audit that could not compare, because it met a sync, there is another."""

AuditTableOpener = Callable[[Family], AbstractContextManager[TablePort]]
"""Opens a second way to a family's table, on which nothing else waits."""


class Daemon:
    """Both families' Proxiers, driven together; one family's failure does not stop the other."""

    def __init__(
        self,
        proxiers: Sequence[Proxier],
        dispatcher: Dispatcher,
        auditor: AuditTableOpener | None = None,
        observers: Sequence[SyncObserver] = (),
    ) -> None:
        """Drive ``proxiers``, whose states the dispatcher feeds; without an ``auditor`` they believe themselves."""
        self._auditor = auditor
        self._observers = observers
        self._taking_in = threading.Lock()
        self._proxiers = proxiers
        self._dispatcher = dispatcher
        self._said: dict[Family, set[str]] = {}
        self._foreign: dict[Family, deque[ForeignChange]] = {proxier.family: deque() for proxier in proxiers}
        self._large = False
        """Whether a sync since the last settling compared everything."""
        self.foreign_changes = Counter[Family]()
        self.audit_differences = Counter[Family]()
        self._wake: Callable[[], None] = lambda: None
        self._wake_within: Callable[[float], None] = lambda _: None

    @property
    def states(self) -> dict[Family, ServiceState]:
        """What every family knows of the cluster; only figures are for other threads."""
        return {proxier.family: proxier.state for proxier in self._proxiers}

    def handle(self, changes: Iterable[ObjectChange]) -> None:
        """Take in changed objects, and have them synced if they matter; from any thread."""
        with self._taking_in:
            due = self._dispatcher.handle(changes)
        if due:
            self._queue()

    def update_local_addresses(self, local_addresses: frozenset[str]) -> None:
        """Take in the machine's interface addresses, and have a change synced; from any thread."""
        with self._taking_in:
            due = self._dispatcher.update_local_addresses(local_addresses)
        if due:
            self._queue()

    def _queue(self) -> None:
        for proxier in self._proxiers:
            self._tell(lambda observer, family=proxier.family: observer.sync_queued(family))  # type: ignore[misc]
        self._wake()

    def _tell(self, what: Callable[[SyncObserver], None]) -> None:
        for observer in self._observers:
            try:
                what(observer)
            except Exception:
                log.exception("%s failed unexpectedly; please report this", type(observer).__name__)

    def sync(self) -> bool:
        """Sync every family; return whether all succeeded."""
        with gc_disabled():
            succeeded = [self._sync_one(proxier) for proxier in self._proxiers]
        if self._large:
            freeze_and_trim()
            self._large = False
        return all(succeeded)

    def _sync_one(self, proxier: Proxier) -> bool:
        self._say_foreign(proxier.family)
        self._tell(lambda observer: observer.sync_started(proxier.family))
        started = time.monotonic()
        try:
            report = proxier.sync()
        except KernelError as error:
            log.error("%s: sync failed: %s", proxier.family.value, error)  # noqa: TRY400 - ours, with its story
            log.debug("%s", error.detail)
        except Exception:
            # A mistake of knft's own must not end the loop (J.1): the rules stay, and the next sync starts anew.
            log.exception("%s: sync failed unexpectedly; please report this", proxier.family.value)
        else:
            self._note(report)
            self._tell(lambda observer: observer.sync_succeeded(report, proxier.state))
            return True
        seconds = time.monotonic() - started
        log.debug("%s: the sync that failed took %.1f ms", proxier.family.value, seconds * 1e3)
        self._tell(lambda observer: observer.sync_failed(proxier.family, seconds))
        return False

    def _note(self, report: SyncReport) -> None:
        log.log(logging.INFO if report.is_full else logging.DEBUG, "%s", report)
        self._large |= report.is_full
        self._say_once(report)
        if report.next_sync_within is not None:
            self._wake_within(report.next_sync_within)

    def _say_once(self, report: SyncReport) -> None:
        """Say what is not as the objects want it, each when it begins to be so."""
        sentences = {str(lost) for lost in report.losing_claims}
        sentences |= {f"{name} is left out, and tried again: {reason}" for name, reason in report.quarantined.items()}
        sentences |= {
            f"{name} goes without session affinity: every number is taken" for name in report.without_affinity
        }
        if report.orphan_error:
            sentences.add(f"what nobody wants any more is still there, and tried again: {report.orphan_error}")
        said = self._said.get(report.family, set())
        self._said[report.family] = sentences
        for sentence in sorted(sentences - said):
            log.warning("%s: %s", report.family.value, sentence)

    def watch_foreign_changes(self, others: ForeignChangeMonitor, stop: threading.Event) -> None:
        """Have mended what others change in knft's tables, until ``stop`` is set; a thread of its own calls this."""
        while not stop.is_set():
            try:
                for change in others.receive(RECEIVE_TIMEOUT_SECONDS):
                    self._note_foreign(change)
            except KernelError as error:
                log.warning("%s; until they are, changes by others are found by the audit alone", error)
                self._listen_again(others, stop)
            except Exception:
                log.exception("listening to others' changes failed unexpectedly; please report this")
                self._listen_again(others, stop)

    def _listen_again(self, others: ForeignChangeMonitor, stop: threading.Event) -> None:
        """Open the way for notifications anew, now and then; what was missed meanwhile is found by a comparison."""
        while not stop.wait(REOPEN_SECONDS):
            try:
                others.reopen()
            except KernelError as error:
                log.debug("%s", error)
                continue
            for proxier in self._proxiers:
                proxier.invalidate(Invalidation(declarations=True, every_chain=True))
            self._wake()
            return

    def watch_library_process(self, library: LibraryProcess, stop: threading.Event) -> None:
        """Have a sync where the library's idle process has died, until ``stop`` is set; a thread of its own calls this.

        The table that it owned is anybody's until then.
        """
        while not stop.is_set():
            died = library.has_died_within(RECEIVE_TIMEOUT_SECONDS)
            if stop.is_set():  # It is this process that ends it.
                return
            if died:
                log.warning("the idle process for libnftables has died; there is another")
                self._wake()
            else:
                stop.wait(1.0)

    def _note_foreign(self, change: ForeignChange) -> None:
        for proxier in self._proxiers:
            if proxier.family is change.family:
                self.foreign_changes[proxier.family] += 1
                proxier.invalidate(Invalidation(change.chains, declarations=True, every_chain=change.overrun))
                self._foreign[proxier.family].append(change)
        self._wake()

    def _say_foreign(self, family: Family) -> None:
        """Say in one line what others have changed since the last sync."""
        waiting = self._foreign[family]
        changes = [waiting.popleft() for _ in range(len(waiting))]
        if changes:
            who = sorted({change.process or "somebody" for change in changes})
            what = sorted({name for change in changes for name in change.chains | change.sets})
            touched = (
                f": {', '.join(what[:MAX_LOGGED_NAMES])}{' and more' if len(what) > MAX_LOGGED_NAMES else ''}"
                if what
                else ""
            )
            verb = "may have changed" if any(change.overrun for change in changes) else "changed"
            log.warning("%s: %s %s the table%s; it is compared and mended", family.value, ", ".join(who), verb, touched)

    def audit(self) -> bool:
        """Compare every family's table with what was committed, and have a difference mended; from any thread.

        Returns whether no sync was in the way.
        """
        if self._auditor is None:
            return True
        done = [self._has_audited(proxier, self._auditor) for proxier in self._proxiers]
        return all(done)

    def _has_audited(self, proxier: Proxier, auditor: AuditTableOpener) -> bool:
        family = proxier.family.value
        try:
            with auditor(proxier.family) as port:
                count = proxier.audit(port)
        except KernelError as error:
            log.warning("%s: the table was not compared with what was committed: %s", family, error)
            return True
        if count:
            self.audit_differences[proxier.family] += count
            log.warning("%s: %d elements or chains are not what was committed; mending them", family, count)
            self._wake()
        return count is not None

    def _audit_now_and_then(self, stop: threading.Event) -> None:
        pause = AUDIT_SECONDS
        while not stop.wait(pause):
            pause = AUDIT_SECONDS
            try:
                if not self.audit():
                    pause = AUDIT_RETRY_SECONDS
            except Exception:
                log.exception("the audit failed unexpectedly; please report this")

    def run(self, min_period: float, sync_period: float, clock: Clock, stop: threading.Event) -> None:
        """Sync now and after every change until ``stop`` is set; periods are seconds."""
        intervals = Intervals(min_period, sync_period, max(STICKY_GC_SECONDS, min_period))
        runner = BoundedFrequencyRunner(self.sync, intervals, clock, random.random)
        self._wake, self._wake_within = runner.request, runner.request_within
        for proxier in self._proxiers:
            self._tell(lambda observer, family=proxier.family: observer.loop_started(family))  # type: ignore[misc]
        runner.request()

        def stop_runner() -> None:
            stop.wait()
            runner.stop()

        threading.Thread(target=stop_runner, name="stop", daemon=True).start()
        threading.Thread(target=self._audit_now_and_then, args=[stop], name="audit", daemon=True).start()
        runner.loop()
