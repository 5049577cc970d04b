"""Shutdown: the one place where it is noted that the daemon has to end, and why."""

import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger("knft")

FAILED_EXIT_STATUS = 1
"""What a process exits with that has to end, and that something under way keeps from it."""


class Shutdown:
    """Set ``stop``, and remember the first failure that has; from any thread."""

    def __init__(
        self, stop: threading.Event, grace_seconds: float, exit_process: Callable[[int], object] = os._exit
    ) -> None:
        """Begin without a failure; after one, ``patience`` seconds are given to what is under way, then it is left."""
        self.stop = stop
        self._exit_process = exit_process
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """End the daemon by an error, unless it ends anyway."""
        with self._lock:
            if self.stop.is_set():
                return
            self._failure = error
            self.stop.set()
        threading.Thread(target=self._exit_after_grace_period, args=[error], name="ending", daemon=True).start()

    def _exit_after_grace_period(self, error: Exception) -> None:
        """End the process where a sync hangs: who no longer follows must not answer probes. Rules stay in place."""
        time.sleep(self._grace_seconds)
        log.error("%s", error)
        self._exit_process(FAILED_EXIT_STATUS)

    def fail_after(self, seconds: float, error: Exception) -> None:
        """Do so a little later, so that what was just said of it can still be sent."""
        timer = threading.Timer(seconds, self.fail, [error])
        timer.daemon = True
        timer.start()

    def raise_failure(self) -> None:
        """Raise what the daemon ends by, where it is an error."""
        if self._failure is not None:
            raise self._failure

    def start_thread(self, name: str, target: Callable[[], None]) -> None:
        """Start a thread that ends the daemon, loudly, when it fails: who no longer follows must not look healthy."""

        def run_target() -> None:
            try:
                target()
            except Exception as error:  # noqa: BLE001 - raised again by the main thread
                self.fail(error)

        threading.Thread(target=run_target, name=name, daemon=True).start()
