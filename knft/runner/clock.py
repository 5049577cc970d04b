"""The clock of the runner; tests use a fake one."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that can be waited on."""

    def now(self) -> float:
        """Return seconds since a fixed moment; never decreases."""

    def wait(self, event: threading.Event, until: float) -> bool:
        """Wait for ``event``, at most until ``now()`` reaches ``until``; return whether the event is set."""


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return seconds since a fixed moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, until: float) -> bool:
        """Wait for ``event``, at most until ``until``; return whether the event is set."""
        return event.wait(max(0.0, until - self.now()))
