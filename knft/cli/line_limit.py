"""LineLimit: limits the warnings and errors of one kind, so that a mistake in many objects does not fill the log.

See docs/operations/index.md#logs.
"""

import threading
from collections.abc import Hashable

from msgspec import Struct

MAX_LINES = 100
"""How many lines of a kind are logged in each interval."""
INTERVAL_SECONDS = 60.0
"""The length of an interval; it begins with the first line of a kind."""


class _Interval(Struct):
    """The lines of a kind in an interval: how many there were, and the last one that was not logged."""

    end: float
    lines: int = 0
    last: str = ""


class LineLimit:
    """Counts the lines of each kind: MAX_LINES are logged in INTERVAL_SECONDS. Any thread may use it.

    Times are in seconds and never decrease.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self._lock = threading.Lock()
        self._intervals: dict[Hashable, _Interval] = {}

    def count(self, kind: Hashable, message: str, now: float) -> int:
        """Count a line with ``message``; return its number in the interval. Log it if that is at most MAX_LINES."""
        with self._lock:
            found = self._intervals.get(kind)
            if found is None or (now >= found.end and found.lines <= MAX_LINES):
                found = self._intervals[kind] = _Interval(now + INTERVAL_SECONDS)
            found.lines += 1
            if found.lines > MAX_LINES:
                found.last = message
            return found.lines

    def take_summaries(self, now: float) -> list[str]:
        """Return a message for each interval that has ended and in which lines were not logged."""
        with self._lock:
            ended = {kind: item for kind, item in self._intervals.items() if item.end <= now}
            for kind in ended:
                del self._intervals[kind]
        return [
            f"did not log {item.lines - MAX_LINES} more warnings of one kind in {INTERVAL_SECONDS:.0f} s; "
            f"the last one: {item.last}"
            for item in ended.values()
            if item.lines > MAX_LINES
        ]

    def next_summary(self, now: float) -> float | None:
        """Return in how many seconds a summary is due, None if no line was left out."""
        with self._lock:
            ends = [item.end for item in self._intervals.values() if item.lines > MAX_LINES]
        return max(0.0, min(ends) - now) if ends else None
