"""Ending: the one place where it is noted that the daemon has to end, and why."""

import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger("knft")

STATUS = 1
"""What a process exits with that has to end, and that something under way keeps from it."""


class Ending:
    """Set ``stop``, and remember the first failure that has; from any thread."""

    def __init__(self, stop: threading.Event, patience: float, leave: Callable[[int], object] = os._exit) -> None:
        """Begin without a failure; after one, ``patience`` seconds are given to what is under way, then it is left."""
        self.stop = stop
        self._leave = leave
        self._patience = patience
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """End the daemon by an error, unless it ends anyway."""
        with self._lock:
            if self.stop.is_set():
                return
            self._failure = error
            self.stop.set()
        threading.Thread(target=self._insist, args=[error], name="ending", daemon=True).start()

    def _insist(self, error: Exception) -> None:
        """End the process where a sync hangs: who no longer follows must not answer probes. Rules stay in place."""
        time.sleep(self._patience)
        log.error("%s", error)
        self._leave(STATUS)

    def fail_after(self, seconds: float, error: Exception) -> None:
        """Do so a little later, so that what was just said of it can still be sent."""
        timer = threading.Timer(seconds, self.fail, [error])
        timer.daemon = True
        timer.start()

    def raise_failure(self) -> None:
        """Raise what the daemon ends by, where it is an error."""
        if self._failure is not None:
            raise self._failure

    def thread(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread that ends the daemon, loudly, when it fails: who no longer follows must not look healthy."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised again by the main thread
                self.fail(error)

        threading.Thread(target=guarded, name=name, daemon=True).start()
