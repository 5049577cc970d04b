"""Runs credential plugins without capabilities and with a timeout."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from knft.apiserver.descendants import end_descendants
from knft.errors import ApiServerError, UsageError
from knft.kernel.privileges import drop_all_in_thread
from knft.memory_errors import exit_if_out_of_memory

Result = TypeVar("Result")
_POLL_SECONDS = 0.05
TERMINATION_SECONDS = 0.25
"""How long a plugin may take to exit after SIGTERM; with the poll, less than the running daemon's grace period."""
START_TERMINATION_SECONDS = 2.0
"""The same for a signal while knft starts, when nothing waits for its exit."""
_started_threads: "set[threading.Thread]" = set()


def end_plugins() -> None:
    """End all plugins that run, because the process is about to exit; also safe in a signal handler."""
    for thread in list(_started_threads):
        _end_processes(thread, START_TERMINATION_SECONDS)


class PluginRunner:
    """Runs one plugin at a time, in a thread of its own, which has no capabilities.

    After a timeout the thread is abandoned, but the processes that it started are ended: nothing else would end them.
    """

    def __init__(self, timeout: float, closed: threading.Event) -> None:
        """Wait at most ``timeout`` seconds for a plugin, and not after ``closed`` is set."""
        self._timeout = timeout
        self._closed = closed
        self._running: threading.Thread | None = None

    def run(self, plugin: str, work: "Callable[[], Result]") -> "Result":
        """Return the result of ``work`` or raise its error; ``plugin`` is the plugin's name in messages.

        Raises UsageError if it takes too long, and ApiServerError if knft shuts down.
        """
        msg = f"{plugin} did not finish within {self._timeout:g} s"
        if self._running is not None and self._running.is_alive():
            # The last run still hangs: another one would hang too.
            raise UsageError(msg)
        outcome: _Outcome[Result] = _Outcome()
        self._running = thread = threading.Thread(target=outcome.fill, args=[work], name="plugin", daemon=True)
        _started_threads.add(thread)
        thread.start()
        try:
            return self._wait(outcome, thread, msg)
        finally:
            _started_threads.discard(thread)

    def _wait(self, outcome: "_Outcome[Result]", thread: threading.Thread, timeout_message: str) -> "Result":
        waited = 0.0
        while not outcome.filled.wait(_POLL_SECONDS):
            waited += _POLL_SECONDS
            if self._closed.is_set():
                _end_processes(thread)
                closing = "knft is shutting down"
                raise ApiServerError(closing)
            if waited >= self._timeout:
                _end_processes(thread)
                raise UsageError(timeout_message)
        # Capabilities can only be dropped while no other thread exists.
        thread.join()
        if outcome.error is not None:
            raise outcome.error
        return outcome.results[0]


def _end_processes(thread: threading.Thread, seconds: float = TERMINATION_SECONDS) -> None:
    if thread.native_id is not None:
        end_descendants(thread.native_id, seconds)


class _Outcome(Generic[Result]):
    """The result or the error of some work."""

    def __init__(self) -> None:
        self.filled = threading.Event()
        self.results: list[Result] = []
        self.error: Exception | None = None

    def fill(self, work: Callable[[], Result]) -> None:
        try:
            # Capabilities belong to threads, and a process inherits those of the thread that starts it.
            drop_all_in_thread()
            self.results.append(work())
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            exit_if_out_of_memory(error)
            self.error = error
        finally:
            self.filled.set()
