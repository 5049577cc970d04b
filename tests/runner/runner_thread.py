"""A clock that the test advances, and a BoundedFrequencyRunner in a thread that the test waits for."""

import threading
from collections.abc import Callable, Iterable

from knft.runner.bounded import BoundedFrequencyRunner, Intervals

THREAD_TIMEOUT = 10.0
"""Seconds of real time until a test fails because a thread hangs; everything else uses the fake clock."""


class FakeRunnerClock:
    """A ``Clock`` that the test advances."""

    def __init__(self) -> None:
        """Start at zero."""
        self._condition = threading.Condition()
        self._now = 0.0
        self._waiting: tuple[threading.Event, float] | None = None
        self._ended = False

    def now(self) -> float:
        """Return the current fake time."""
        with self._condition:
            return self._now

    def wait(self, event: threading.Event, until: float) -> bool:
        """Block until ``event`` is set or ``until`` is reached; the test calls ``settle`` after setting the event."""
        with self._condition:
            self._waiting = (event, until)
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._blocked())
            self._waiting = None
            return event.is_set()

    def _blocked(self) -> bool:
        if self._waiting is None:
            return False
        event, until = self._waiting
        return not event.is_set() and self._now < until

    def pass_time(self, seconds: float) -> None:
        """Advance the time during a run."""
        with self._condition:
            self._now += seconds

    def thread_ended(self) -> None:
        """Record that the runner's thread has ended."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    def settle(self) -> bool:
        """Wait until the runner's thread is blocked, or has ended; return whether it has ended."""
        with self._condition:
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: self._ended or self._blocked(), THREAD_TIMEOUT), (
                "the runner's thread hangs"
            )
            return self._ended

    def advance_to(self, time: float) -> None:
        """Advance the time to ``time``, stopping at each deadline of the thread."""
        while not self.settle():
            with self._condition:
                deadline = self._waiting[1] if self._waiting else time
                self._now = max(self._now, min(deadline, time))
            if deadline > time:
                return


class RunnerThread:
    """A BoundedFrequencyRunner in a thread; ``starts`` has the start times of its runs."""

    def __init__(
        self,
        intervals: Intervals,
        *,
        failing: Iterable[int] = (),
        duration: float = 0,
        during: Callable[[int], None] | None = None,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Each run takes ``duration``, calls ``during`` with its number, and fails if the number is in ``failing``."""
        self.clock = FakeRunnerClock()
        self.starts: list[float] = []
        self.runner = BoundedFrequencyRunner(self._run, intervals, self.clock, jitter)
        self._failing, self._duration, self._during = frozenset(failing), duration, during
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self) -> None:
        self.runner.loop()
        self.clock.thread_ended()

    def _run(self) -> bool:
        number = len(self.starts)
        self.starts.append(self.clock.now())
        self.clock.pass_time(self._duration)
        if self._during is not None:
            self._during(number)
        return number not in self._failing

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self.clock.settle()

    def request_at(self, *times: float) -> None:
        """Request a run at each of these times."""
        for time in times:
            self.clock.advance_to(time)
            self.runner.request()
            self.clock.settle()

    def stop(self) -> None:
        """Stop the runner, and wait for its thread."""
        self.runner.stop()
        assert self.clock.settle(), "the loop continues after stop()"
        self._thread.join()
