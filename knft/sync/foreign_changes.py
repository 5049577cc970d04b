"""ForeignChanges: decides when knft checks its table after changes by other programs.

knft checks the table at once. But if another program changes it after each check, such as a second knft process with
other objects, the delay before the next check doubles, so that both do not sync without end.

    add ──▶ waiting ──release──▶ released ──begin_check──▶ checking ──finish_check──▶ none
"""

import math
import threading

from msgspec import Struct

from knft.kernel.notifications import ForeignChange

REPETITION_SECONDS = 10.0
"""A change within this time after a check counts as a repetition. Another knft reacts within a few seconds."""
UNDELAYED_REPETITIONS = 4
"""How many repetitions are checked without delay."""
FIRST_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0
MAX_DELAY_FOR_KNFT_SECONDS = 3600.0
"""The longest delay if only other knft processes make the changes: their rules serve traffic, too."""
CHECK_POLL_SECONDS = 0.25
"""How often to look whether a check has ended, while more changes wait."""
MAX_LOGGED_NAMES = 5
"""Most names of chains and sets in a log line."""


class ForeignChangeSummary(Struct, frozen=True):
    """The foreign changes that one check handles: which processes changed what."""

    processes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """The names of chains, sets and maps."""
    overrun: bool = False
    """Whether anything may have changed, because the kernel dropped notifications."""

    def with_change(self, change: ForeignChange) -> "ForeignChangeSummary":
        """Return the summary with one more change."""
        return ForeignChangeSummary(
            self.processes | {change.process or "an unknown process"},
            self.names | change.chains | change.sets,
            self.overrun or change.overrun,
        )

    @property
    def is_by_knft(self) -> bool:
        """Whether only other knft processes made the changes, as far as their names are known."""
        return all(process.startswith("knft (") for process in self.processes)

    def __str__(self) -> str:
        """Return text such as "nft (pid 7) changed the table: services"."""
        names = sorted(self.names)
        listed = ", ".join(names[:MAX_LOGGED_NAMES]) + (" and more" if len(names) > MAX_LOGGED_NAMES else "")
        verb = "may have changed" if self.overrun else "changed"
        return f"{', '.join(sorted(self.processes))} {verb} the table{f': {listed}' if names else ''}"


class ForeignChanges:
    """The foreign changes of one family's table. Any thread may use it; times are in seconds."""

    def __init__(self) -> None:
        """Start without any."""
        self._lock = threading.Lock()
        self._waiting: ForeignChangeSummary | None = None
        self._released: ForeignChangeSummary | None = None
        self._is_checking = False
        self._checked_at = -math.inf
        self._repetitions = 0
        self._delay = 0.0

    def add(self, change: ForeignChange, now: float) -> float:
        """Record a change; return the seconds until the check that it causes, 0 if that is due or already planned."""
        with self._lock:
            if self._released is not None and not self._is_checking:
                self._released = self._released.with_change(change)
                return 0.0
            if self._waiting is not None:
                self._waiting = self._waiting.with_change(change)
                return 0.0
            self._waiting = ForeignChangeSummary().with_change(change)
            self._repetitions = self._repetitions + 1 if self._is_checking or now < self._quiet_at() else 0
            self._delay = self._next_delay()
            return self._delay if self._is_checking else max(0.0, self._due_at() - now)

    def _next_delay(self) -> float:
        delayed = self._repetitions - UNDELAYED_REPETITIONS
        if delayed <= 0:
            return 0.0
        is_by_knft = self._waiting is not None and self._waiting.is_by_knft
        longest = MAX_DELAY_FOR_KNFT_SECONDS if is_by_knft else MAX_DELAY_SECONDS
        return min(FIRST_DELAY_SECONDS * 2.0 ** min(delayed - 1, 32), longest)

    def _due_at(self) -> float:
        return self._checked_at + self._delay

    def _quiet_at(self) -> float:
        """Return the time from which a change does not count as a repetition."""
        return self._checked_at + max(REPETITION_SECONDS, self._delay)

    def seconds_to_release(self, now: float) -> float:
        """Return the time until ``release`` may succeed; infinite if no change waits."""
        with self._lock:
            if self._waiting is None:
                return math.inf
            return CHECK_POLL_SECONDS if self._released is not None else max(0.0, self._due_at() - now)

    def release(self, now: float) -> bool:
        """Release the waiting changes for a check if that is due; return whether it is."""
        with self._lock:
            if self._waiting is None or self._released is not None or now < self._due_at():
                return False
            self._waiting, self._released = None, self._waiting
            return True

    def begin_check(self) -> ForeignChangeSummary | None:
        """Return the released changes, which the sync that begins now checks; None if there are none."""
        with self._lock:
            self._is_checking = self._released is not None
            return self._released

    def finish_check(self, now: float) -> None:
        """Record the end of the sync, which has checked the released changes if there were any."""
        with self._lock:
            if self._is_checking:
                self._released, self._is_checking, self._checked_at = None, False, now

    def delay(self, now: float) -> float:
        """Return the seconds between a check and the next one; 0 unless changes repeat."""
        with self._lock:
            return self._delay if self._waiting is not None or now < self._quiet_at() else 0.0
