"""ForeignChangeWatch: has knft check its tables after other programs have changed them.

``ForeignChanges`` decides when; this module receives the notifications, logs them and requests the syncs.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange, ForeignChangeMonitor
from knft.memory_errors import exit_if_out_of_memory
from knft.sync.foreign_changes import ForeignChanges, ForeignChangeSummary
from knft.sync.invalidation import Invalidation
from knft.sync.older_version import OlderVersion
from knft.sync.proxier import Proxier

log = logging.getLogger("knft")

POLL_SECONDS = 60.0
"""Longest delay until the thread notices that knft stops."""
REOPEN_SECONDS = 10.0
"""Delay before failed notifications are opened again."""
OLDER_VERSION_POLL_SECONDS = 1.0
"""How often to look whether the older version to which a table is left has ended."""


class ForeignChangeWatch:
    """The foreign changes of all families' tables, and when the tables are checked; safe to use from any thread."""

    def __init__(
        self,
        proxiers: Sequence[Proxier],
        request_sync: Callable[[], None],
        older_versions: Mapping[Family, OlderVersion],
    ) -> None:
        """Start without changes; ``request_sync`` queues a sync of all families.

        A family without an ``OlderVersion`` is never left to another process.
        """
        self._older_versions = older_versions
        self._proxiers = {proxier.family: proxier for proxier in proxiers}
        self._request_sync = request_sync
        self._changes = {family: ForeignChanges() for family in self._proxiers}
        self.counts = Counter[Family]()
        """How many transactions of other programs have changed each table."""

    def run(self, monitor: ForeignChangeMonitor, stop: threading.Event) -> None:
        """Record changes and request checks until ``stop`` is set. Needs its own thread."""
        while not stop.is_set():
            try:
                self._take_back_tables()
                for change in monitor.receive(self._seconds_to_poll()):
                    self.record(change)
                self._request_due_check()
            except KernelError as error:
                log.warning("%s; until notifications work again, only the audit finds foreign changes", error)
                self._reopen(monitor, stop)
            except Exception as error:
                exit_if_out_of_memory(error)
                log.exception("watching foreign changes failed unexpectedly; please report this")
                self._reopen(monitor, stop)

    def _reopen(self, monitor: ForeignChangeMonitor, stop: threading.Event) -> None:
        """Reopen the notifications, with retries. A full sync repairs changes that were missed meanwhile."""
        while not stop.wait(REOPEN_SECONDS):
            self._take_back_tables()
            try:
                monitor.reopen()
            except KernelError as error:
                log.debug("%s", error)
                continue
            for proxier in self._proxiers.values():
                proxier.invalidate(Invalidation(declarations=True))
            self._request_sync()
            return

    def record(self, change: ForeignChange) -> None:
        """Record a change, and plan the check of its table; changes of unknown families are ignored."""
        proxier = self._proxiers.get(change.family)
        if proxier is None:
            return
        self.counts[change.family] += 1
        if self.is_left(change.family):
            if change.table_gone:
                self._take_back(change.family, "the table was deleted")
            return
        if self._leaves_table(change):
            self._changes[change.family] = ForeignChanges()
            self._request_sync()  # Which skips the table, and tells the observers that it is left.
            return
        proxier.plan_check()
        seconds = self._changes[change.family].add(change, time.monotonic())
        if seconds:
            log.warning(
                "%s: the table is changed again and again, now by %s: stop this process; knft reads the table back "
                "in %d s",
                change.family.value,
                change.process or "an unknown process",
                math.ceil(seconds),
            )

    def _leaves_table(self, change: ForeignChange) -> bool:
        """Return whether the table is left, from this change on, to the older version that has made it."""
        older = self._older_versions.get(change.family)
        try:
            if older is None or not older.record(change, time.monotonic()):
                return False
        except KernelError as error:
            log.debug("%s: %s", change.family.value, error)
            return False
        log.error(
            "%s: %s does not hold the instance lock and changes the table again and again: stop one of the two; "
            "until it ends, this knft does not change the table",
            change.family.value,
            change.process or "another knft process",
        )
        return True

    def is_left(self, family: Family) -> bool:
        """Return whether a family's table is left to an older version of knft: syncs and audits skip it."""
        older = self._older_versions.get(family)
        return older is not None and older.has_table()

    def _take_back_tables(self) -> None:
        """Take back the tables whose older version may have ended."""
        for family, older in self._older_versions.items():
            try:
                if older.has_ended(time.monotonic()):
                    self._take_back(family, "the other knft process may have ended")
            except KernelError as error:
                log.debug("%s: %s", family.value, error)

    def _take_back(self, family: Family, reason: str) -> None:
        """Request a full sync of a table that was left."""
        log.warning("%s: %s; reading the table back", family.value, reason)
        # Before take_back, so that the next sync is a full one.
        self._proxiers[family].invalidate(Invalidation(declarations=True))
        self._older_versions[family].take_back(time.monotonic())
        self._request_sync()

    def _seconds_to_poll(self) -> float:
        now = time.monotonic()
        longest = OLDER_VERSION_POLL_SECONDS if any(map(self.is_left, self._proxiers)) else POLL_SECONDS
        return min(longest, *(changes.seconds_to_poll(now) for changes in self._changes.values()))

    def _request_due_check(self) -> None:
        now = time.monotonic()
        if any(changes.is_due(now) for changes in self._changes.values()):
            self._request_sync()

    def begin_check(self, family: Family) -> ForeignChangeSummary | None:
        """Make the next sync of a family a full one if a check is due; return the changes that it checks."""
        changes = self._changes[family].begin_check(time.monotonic())
        if changes is not None:
            self._proxiers[family].invalidate(Invalidation(declarations=True))
            log.warning("%s: %s; reading the table back", family.value, changes)
        return changes

    def finish_check(self, family: Family) -> None:
        """Record the end of a sync, which may have been a check."""
        if family in self._older_versions:
            self._older_versions[family].finish_sync()
        self._changes[family].finish_check(time.monotonic())

    def check_delays(self) -> dict[Family, float]:
        """Return the seconds that knft waits before it checks each table after a foreign change."""
        now = time.monotonic()
        return {family: changes.delay(now) for family, changes in self._changes.items()}
