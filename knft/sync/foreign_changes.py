"""ForeignChanges: decides when knft checks its table after changes by other programs.

knft checks the table at once. But if another program changes it after each check, such as a second knft process with
other objects, the delay before the next check doubles, so that both do not sync without end. Only repeated changes wait
long: a change by another program, or of other chains and sets, is checked within NEW_CHANGE_DELAY_SECONDS.

    add ──▶ waiting ──begin_check──▶ checking ──finish_check──▶ none
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
NEW_CHANGE_DELAY_SECONDS = 5.0
"""The longest delay of a change that differs from those that the last check handled. It is not 0, because a program may
change other chains each time."""
CHECK_POLL_SECONDS = 0.25
"""How often to look whether a check has begun or ended, while changes wait for that."""
MAX_LOGGED_NAMES = 5
"""Most names of chains and sets in a log line."""


class ForeignChangeSummary(Struct, frozen=True):
    """The foreign changes that one check handles: which processes changed what."""

    processes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """The names of chains, sets and maps."""
    overrun: bool = False
    """Whether anything may have changed, because the kernel dropped notifications."""
    first_at: float = math.inf
    """When knft was notified of the first change, in seconds of the monotonic clock."""

    def with_change(self, change: ForeignChange, now: float) -> "ForeignChangeSummary":
        """Return the summary with one more change."""
        return ForeignChangeSummary(
            self.processes | {change.process or "an unknown process"},
            self.names | change.chains | change.sets,
            self.overrun or change.overrun,
            min(self.first_at, now),
        )

    def repeats(self, earlier: "ForeignChangeSummary") -> bool:
        """Return whether ``earlier`` has the same programs, chains and sets, or more of them."""
        return self.programs <= earlier.programs and self.names <= earlier.names and self.overrun <= earlier.overrun

    @property
    def programs(self) -> frozenset[str]:
        """The names of the processes, without their ids."""
        return frozenset(process.partition(" (pid ")[0] for process in self.processes)

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
        self._checked = ForeignChangeSummary()
        """The changes that the last check handled."""
        self._checked_at = -math.inf
        """The end of the last check; infinite while it runs."""
        self._repetitions = 0

    def add(self, change: ForeignChange, now: float) -> float:
        """Record a change; return the seconds until the check if this change plans it later or brings it forward.

        Returns 0 if the check is due, or planned for this time already.
        """
        with self._lock:
            if self._waiting is None:
                self._repetitions = self._repetitions + 1 if now < self._quiet_at() else 0
                planned_delay = math.inf
            else:
                planned_delay = self._delay()
            self._waiting = (self._waiting or ForeignChangeSummary()).with_change(change, now)
            if self._delay() == planned_delay:
                return 0.0
            return self._delay() if self._is_checking() else max(0.0, self._due_at() - now)

    def _is_checking(self) -> bool:
        return self._checked_at == math.inf

    def _delay(self) -> float:
        """Return the time from the last check to the next one, for the waiting changes or else for a repetition."""
        delayed = self._repetitions - UNDELAYED_REPETITIONS
        if delayed <= 0:
            return 0.0
        is_repetition = self._waiting is None or self._waiting.repeats(self._checked)
        longest = MAX_DELAY_SECONDS if is_repetition else NEW_CHANGE_DELAY_SECONDS
        return min(FIRST_DELAY_SECONDS * 2.0 ** min(delayed - 1, 32), longest)

    def _due_at(self) -> float:
        return self._checked_at + self._delay()

    def _quiet_at(self) -> float:
        """Return the time from which a change does not count as a repetition, if none waits."""
        return self._checked_at + max(REPETITION_SECONDS, self._delay())

    def is_due(self, now: float) -> bool:
        """Return whether ``begin_check`` would begin a check."""
        with self._lock:
            return self._waiting is not None and now >= self._due_at()

    def seconds_to_poll(self, now: float) -> float:
        """Return the time after which to call ``is_due`` again; infinite if no change waits."""
        with self._lock:
            if self._waiting is None:
                return math.inf
            seconds = self._due_at() - now
            return seconds if 0 < seconds < math.inf else CHECK_POLL_SECONDS

    def begin_check(self, now: float) -> ForeignChangeSummary | None:
        """Return the waiting changes if they are due: the sync that begins now checks them. Otherwise return None."""
        with self._lock:
            if self._waiting is None or now < self._due_at():
                return None
            self._checked, self._checked_at = self._waiting, math.inf
            self._waiting = None
            return self._checked

    def finish_check(self, now: float) -> None:
        """Record the end of a sync, which may have been a check."""
        with self._lock:
            if self._is_checking():
                self._checked_at = now

    def unchecked(self) -> ForeignChangeSummary | None:
        """Return the changes that wait for a check, or that the running sync checks; None if all were checked."""
        with self._lock:
            return self._waiting or (self._checked if self._is_checking() else None)

    def delay(self, now: float) -> float:
        """Return the seconds between a check and the next one; 0 unless changes repeat."""
        with self._lock:
            return self._delay() if self._waiting is not None or now < self._quiet_at() else 0.0
