"""BoundedFrequencyRunner: not more often than this, not more rarely than that (J.1).

    request() ──▶ queue of one ──▶ run ──▶ cool down (min) ──▶ wait for request, retry or max ──▶ run …

The pauses count from the end of a run, so that long runs leave the machine time to breathe.
"""

import math
import threading
from collections.abc import Callable

from msgspec import Struct

from knft.runner.clock import Clock


class Intervals(Struct, frozen=True):
    """Seconds: between two runs at least ``minimum``, at most ``maximum``; ``retry`` after a failed run."""

    minimum: float
    retry: float
    maximum: float

    def __post_init__(self) -> None:
        """Refuse a maximum that comes before the minimum."""
        if self.maximum < self.minimum:
            msg = f"maximum interval {self.maximum} s is less than the minimum {self.minimum} s"
            raise ValueError(msg)

    def next_delay(self, *, succeeded: bool, jitter: float = 0.0) -> float:
        """Return how long after a run the next one comes by itself; ``jitter``, 0 to 1, puts off a retry by a fifth."""
        return self.maximum if succeeded else min(self.retry * (1 + jitter / 5), self.maximum)


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
        self._wanted_within = math.inf
        self._run = run
        self._intervals = intervals
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()

    def request(self) -> None:
        """Ask for a run; requests before it starts count as one. Never blocks."""
        self._wake.set()

    def request_within(self, seconds: float) -> None:
        """Ask, during a run, for the next one at the latest so long after it."""
        self._wanted_within = min(self._wanted_within, seconds)

    def stop(self) -> None:
        """End the loop after the run in progress. Not for signal handlers: an Event's lock is not reentrant."""
        self._stop.set()
        self._wake.set()

    def loop(self) -> None:
        """Run when asked, until stopped; the first run comes with the first request or after the maximum."""
        due = self._clock.now() + self._intervals.maximum
        while True:
            self._clock.wait(self._wake, due)
            # Cleared before the function runs: a request meanwhile stays, and causes one more run. Cleared before the
            # look at stop(), which sets both: one that comes later wakes the next wait.
            self._wake.clear()
            if self._stop.is_set():
                return
            self._wanted_within = math.inf
            succeeded = self._run()
            ended = self._clock.now()
            pause = self._intervals.next_delay(succeeded=succeeded, jitter=self._jitter())
            due = ended + min(pause, self._wanted_within)
            self._clock.wait(self._stop, ended + self._intervals.minimum)
