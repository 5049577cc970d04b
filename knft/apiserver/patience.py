"""Patience: somebody else's program is waited for so long, and no longer."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from knft.apiserver.descendants import kill_descendants
from knft.errors import ClusterError, UsageError

Result = TypeVar("Result")
_LOOK_SECONDS = 0.05


class Patience:
    """Runs one thing at a time in a thread of its own, which may go on when nobody waits for it any more.

    The processes that it has started may not: nobody would ever end them.
    """

    def __init__(self, seconds: float, ending: threading.Event) -> None:
        """Wait for ``seconds`` at the most, and no longer than until ``ending`` is set."""
        self._seconds = seconds
        self._ending = ending
        self._running: threading.Thread | None = None

    def run(self, what: str, work: "Callable[[], Result]") -> "Result":
        """Return what ``work`` returns, or raise what it raises.

        Raises UsageError, with ``what``, where it takes too long, and ClusterError where everything ends.
        """
        msg = f"{what} has given no answer for {self._seconds:g} s"
        if self._running is not None and self._running.is_alive():
            # Another one would only wait beside it.
            raise UsageError(msg)
        outcome: _Outcome[Result] = _Outcome()
        self._running = running = threading.Thread(target=outcome.fill, args=[work], name="plugin", daemon=True)
        running.start()
        waited = 0.0
        while not outcome.filled.wait(_LOOK_SECONDS):
            waited += _LOOK_SECONDS
            if self._ending.is_set():
                _give_up(running)
                ending = "knft is ending"
                raise ClusterError(ending)
            if waited >= self._seconds:
                _give_up(running)
                raise UsageError(msg)
        if outcome.error is not None:
            raise outcome.error
        return outcome.results[0]


def _give_up(running: threading.Thread) -> None:
    if running.native_id is not None:
        kill_descendants(running.native_id)


class _Outcome(Generic[Result]):
    """What has become of some work."""

    def __init__(self) -> None:
        self.filled = threading.Event()
        self.results: list[Result] = []
        self.error: Exception | None = None

    def fill(self, work: Callable[[], Result]) -> None:
        try:
            self.results.append(work())
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            self.error = error
        finally:
            self.filled.set()
