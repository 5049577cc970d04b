"""Shutdown: stops the daemon from any thread, and keeps the error that was the reason."""

import logging
import os
import threading
import time
from collections.abc import Callable

from knft.memory_errors import exit_if_out_of_memory

log = logging.getLogger("knft")

FAILED_EXIT_STATUS = 1
"""Exit status after an error if the main thread does not end within the grace period."""


class Shutdown:
    """Sets ``stop`` and keeps the first error. Any thread may use it."""

    def __init__(
        self, stop: threading.Event, grace_seconds: float, exit_process: Callable[[int], object] = os._exit
    ) -> None:
        """Call ``exit_process`` ``grace_seconds`` after an error, even if a sync has not returned."""
        self.stop = stop
        self._exit_process = exit_process
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Stop the daemon because of an error, unless it is stopping already."""
        with self._lock:
            if self.stop.is_set():
                return
            self._failure = error
            self.stop.set()
        threading.Thread(target=self._exit_after_grace_period, args=[error], name="shutdown", daemon=True).start()

    def _exit_after_grace_period(self, error: BaseException) -> None:
        """Exit even if a sync hangs: a proxy that stopped watching must not report healthy. Rules stay in place."""
        time.sleep(self._grace_seconds)
        log.error("%s", error)
        self._exit_process(FAILED_EXIT_STATUS)

    def fail_after(self, seconds: float, error: Exception) -> None:
        """Call ``fail`` later, so that an event about the error can be posted first."""
        timer = threading.Timer(seconds, self.fail, [error])
        timer.daemon = True
        timer.start()

    def raise_failure(self) -> None:
        """Raise the error that stopped the daemon, if any."""
        if self._failure is not None:
            raise self._failure

    def start_thread(self, name: str, target: Callable[[], None]) -> None:
        """Start a thread whose exceptions stop the daemon: a proxy that stopped watching must not report healthy."""

        def run_target() -> None:
            try:
                target()
            # Also errors of Rust code, which do not derive from Exception.
            except BaseException as error:  # noqa: BLE001 - raised again by the main thread
                exit_if_out_of_memory(error)
                self.fail(error)

        threading.Thread(target=run_target, name=name, daemon=True).start()
