"""Time, as the runner sees it; tests hold a clock of their own."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that can be waited on."""

    def now(self) -> float:
        """Return seconds since some fixed moment; never goes back."""

    def wait(self, event: threading.Event, until: float) -> bool:
        """Wait for ``event``, at most until ``now()`` reaches ``until``; return whether the event is set."""


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, until: float) -> bool:
        """Wait for ``event``, at most until ``until``; return whether the event is set."""
        return event.wait(max(0.0, until - self.now()))
