"""Ending: the one place where it is noted that the daemon has to end, and why."""

import threading
from collections.abc import Callable


class Ending:
    """Set ``stop``, and remember the first failure that has; from any thread."""

    def __init__(self, stop: threading.Event) -> None:
        """Begin without a failure."""
        self.stop = stop
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """End the daemon by an error, unless it ends anyway."""
        with self._lock:
            if not self.stop.is_set():
                self._failure = error
            self.stop.set()

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
