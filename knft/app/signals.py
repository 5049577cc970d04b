"""SIGTERM and SIGINT, as an event."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def exit_on_signals() -> None:
    """Have both end this process at once, also as a container's first, until ``stop_on_signals`` is called."""

    def end(number: int, _: FrameType | None) -> None:
        os._exit(128 + number)

    for number in _STOP_SIGNALS:
        signal.signal(number, end)


def stop_on_signals(wake: Callable[[], None] = lambda: None, grace_seconds: float | None = None) -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; a thread waits for them, so that no handler interrupts a sync.

    The main thread calls this, before it starts others: to it and to those, signals do not come any more.
    ``wake`` is called after it is set. Whoever has not ended ``patience`` seconds later is ended, with status 0: a
    commit is carried out as a whole or not at all, whether or not anybody waits for it.
    """
    stop = threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)

    def wait() -> None:
        signal.sigwait(_STOP_SIGNALS)
        stop.set()
        wake()
        # Asked again: whatever a sync is waiting for is not worth waiting for. The rules stay as they are.
        again = (
            signal.sigwaitinfo(_STOP_SIGNALS)
            if grace_seconds is None
            else signal.sigtimedwait(_STOP_SIGNALS, grace_seconds)
        )
        os._exit(128 + again.si_signo if again is not None else 0)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
