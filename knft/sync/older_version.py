"""OlderVersion: leaves a table to a knft process that does not know the instance lock, while that process runs.

This process cannot notice an older version at start. Each of the two would replace the other's rules without end, and
the older version cannot know it, so the process that holds the lock stops. See
docs/operations/failure-modes.md#older-version.

    not left ──CHANGES_BEFORE_LEAVING changes──▶ left ──a subscriber has ended, or TRIAL_SECONDS──▶ not left
"""

import math
import threading
from collections.abc import Callable

from knft.kernel.notifications import ForeignChange
from knft.kernel.process_names import is_knft
from knft.render.layout import RULES_MARKER

CHANGES_BEFORE_LEAVING = 5
"""After how many changes, each of them after a sync of this process, the table is left."""
MEMORY_SECONDS = 600.0
"""How long a change counts."""
TRIAL_SECONDS = 3600.0
"""After this time the table is taken back in any case: the process may have been another one than the subscriber."""
MIN_LEFT_SECONDS, MAX_LEFT_SECONDS = 1.0, 60.0
"""How long a table is left before this process looks for the end of the other; the time doubles if it was wrong."""

Subscribers = Callable[[], frozenset[int]]
"""Returns the identities of the sockets through which other processes receive notifications of nf_tables."""


class OlderVersion:
    """Whether one family's table is left to an older version; safe to use from any thread. Times are in seconds."""

    def __init__(self, own_marker: str, other_subscribers: Subscribers) -> None:
        """Start with a table that is not left.

        ``own_marker`` is the name of the chain that marks this process's rules. ``other_subscribers`` may raise
        KernelError. An older version that replaces what this process has written must receive notifications, so one of
        these sockets belongs to it. A worker process would be no proof that it runs: knft replaces it often.
        """
        self._own_marker = own_marker
        self._other_subscribers = other_subscribers
        self._lock = threading.Lock()
        self._subscribers = frozenset[int]()
        """The subscribers when the table was left; empty while it is not left."""
        self._changed_at: list[float] = []
        """When an older version changed the table; only the first change after each sync counts."""
        self._has_synced = False
        """Whether there was a sync since the last change."""
        self._left_at = -math.inf
        self._left_seconds = MIN_LEFT_SECONDS

    def has_table(self) -> bool:
        """Return whether the table is left to an older version."""
        return bool(self._subscribers)

    def finish_sync(self) -> None:
        """Record the end of a sync."""
        with self._lock:
            self._has_synced = True

    def record(self, change: ForeignChange, now: float) -> bool:
        """Record a change of the table; return whether the table is left from now on.

        It is after the fifth change by a process of knft that follows a sync of this process. Raises KernelError if the
        subscribers cannot be read.
        """
        with self._lock:
            if self._subscribers or not self._has_synced or not self._is_from_knft(change):
                return False
            if change.table_gone:  # By "knft cleanup --force". Another version replaces a table in one transaction.
                return False
            self._has_synced = False
            self._changed_at = [at for at in self._changed_at if now - at < MEMORY_SECONDS] + [now]
            if len(self._changed_at) < CHANGES_BEFORE_LEAVING:
                return False
            self._subscribers = self._other_subscribers()
            if not self._subscribers:
                return False
            is_soon = now - self._left_at < MEMORY_SECONDS
            self._left_seconds = min(2 * self._left_seconds, MAX_LEFT_SECONDS) if is_soon else MIN_LEFT_SECONDS
            self._left_at = now
            return True

    def _is_from_knft(self, change: ForeignChange) -> bool:
        """Return whether the process is named as knft, or wrote the marker chain of other rules than this process's.

        knft knows the names of older versions only if it sees the host's processes.
        """
        markers = {name for name in change.chains if name.startswith(RULES_MARKER)}
        return is_knft(change.process) or bool(markers - {self._own_marker})

    def has_ended(self, now: float) -> bool:
        """Return whether the process to which the table was left may have ended; raise KernelError if unknown.

        If another subscriber has ended instead, the older version changes the table again, and the table is left again.
        """
        with self._lock:
            left_for = now - self._left_at
            if not self._subscribers or left_for < self._left_seconds:
                return False
            return left_for >= TRIAL_SECONDS or not self._subscribers <= self._other_subscribers()

    def take_back(self, now: float) -> None:
        """Record that the table is not left any more.

        If the process still runs, its first change after the next sync is enough to leave the table again.
        """
        with self._lock:
            self._subscribers, self._has_synced = frozenset(), False
            self._changed_at = [now] * (CHANGES_BEFORE_LEAVING - 1)
