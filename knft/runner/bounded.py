"""BoundedFrequencyRunner: runs a function at intervals between a minimum and a maximum.

See docs/behaviour/node.md#runner.

    request() ──▶ flag ──▶ run ──▶ wait for the minimum ──▶ wait for a request, retry or the maximum ──▶ run …

Intervals start at the end of a run, so that long runs leave time for other work.
"""

import math
import threading
from collections.abc import Callable

from msgspec import Struct

from knft.runner.clock import Clock

LONGEST_REST_SECONDS = 1.0
"""After a run, the pause is at least as long as the run was, up to this time: many long runs use half of a core."""


class Intervals(Struct, frozen=True):
    """Seconds between two runs: at least ``minimum``, at most ``maximum``; ``retry`` after a failed run.

    ``burst`` runs may follow each other without a pause; each becomes possible again after ``minimum`` without a run.
    """

    minimum: float
    retry: float
    maximum: float
    burst: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError if the maximum is less than the minimum, or no run is allowed."""
        if self.burst < 1:
            msg = f"a burst has at least one run, not {self.burst}"
            raise ValueError(msg)
        if self.maximum < self.minimum:
            msg = f"maximum interval {self.maximum} s is less than the minimum {self.minimum} s"
            raise ValueError(msg)

    def next_delay(self, *, succeeded: bool, jitter: float = 0.0) -> float:
        """Return the delay after which a run needs no request; ``jitter``, 0 to 1, adds up to 20 % to a retry."""
        return self.maximum if succeeded else min(self.retry * (1 + jitter / 5), self.maximum)


class RunBudget:
    """The runs that may still start without a pause: a token bucket that fills between runs."""

    def __init__(self, intervals: Intervals) -> None:
        """Start with a full bucket."""
        self._intervals = intervals
        self._runs = float(intervals.burst)
        self._ended = math.inf

    def pause_after(self, started: float, ended: float) -> float:
        """Record a run; return the seconds between its end and the earliest start of the next one."""
        minimum, burst = self._intervals.minimum, self._intervals.burst
        if not minimum:
            return 0.0
        regained = max(started - self._ended, 0.0) / minimum
        self._runs, self._ended = min(burst, self._runs + regained) - 1, ended
        pause = max(1 - self._runs, 0.0) * minimum
        return max(pause, min(ended - started, LONGEST_REST_SECONDS)) if pause else 0.0


class BoundedFrequencyRunner:
    """Runs a function in the thread that calls ``loop``."""

    def __init__(
        self,
        run: Callable[[], bool],
        intervals: Intervals,
        clock: Clock,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``run`` does the work and returns whether it succeeded; it must not raise.

        ``jitter`` returns a number from 0 to 1 for each retry, so that nodes that fail together do not retry together.
        """
        self._jitter = jitter
        self._max_delay = math.inf
        self._run = run
        self._intervals = intervals
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()

    def request(self) -> None:
        """Request a run; requests before it starts count as one. Never blocks."""
        self._wake.set()

    def request_within(self, seconds: float) -> None:
        """Call this during a run: the next starts at most ``seconds`` after its end, but not before the minimum."""
        self._max_delay = min(self._max_delay, seconds)

    def stop(self) -> None:
        """End the loop after the current run. Not for signal handlers: an Event's lock is not reentrant."""
        self._stop.set()
        self._wake.set()

    def loop(self) -> None:
        """Run on request until stopped; the first run starts at the first request or after the maximum."""
        due = self._clock.now() + self._intervals.maximum
        budget = RunBudget(self._intervals)
        while True:
            self._clock.wait(self._wake, due)
            # Cleared before the run, so that a request during the run causes another. Cleared before ``_stop`` is
            # read: stop() sets both, so that a later stop() ends the next wait.
            self._wake.clear()
            if self._stop.is_set():
                return
            self._max_delay = math.inf
            started = self._clock.now()
            succeeded = self._run()
            ended = self._clock.now()
            delay = self._intervals.next_delay(succeeded=succeeded, jitter=self._jitter())
            due = ended + min(delay, self._max_delay)
            # Only stop() ends the minimum interval: ``_wake`` is set too if a request is waiting.
            self._clock.wait(self._stop, ended + budget.pause_after(started, ended))
