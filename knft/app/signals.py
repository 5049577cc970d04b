"""Handles SIGTERM and SIGINT."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def exit_on_signals(before_exit: Callable[[], None] = lambda: None) -> None:
    """Exit at once on a signal, after a call of ``before_exit``, until ``stop_on_signals`` is called.

    A container's first process ignores signals without a handler.
    """

    def end(number: int, _: FrameType | None) -> None:
        before_exit()
        os._exit(128 + number)

    for number in _STOP_SIGNALS:
        signal.signal(number, end)


def stop_on_signals(wake: Callable[[], None] = lambda: None, grace_seconds: float | None = None) -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; then ``wake`` is called, to wake a thread that waits elsewhere.

    A thread waits for the signals, so that no handler interrupts a sync. Call it in the main thread before other
    threads start: it blocks the signals for all of them. The process exits with status 0 after ``grace_seconds``, or
    at a second signal: the kernel completes a transaction that it has received, even if the process exits.
    """
    stop = threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)

    def wait() -> None:
        signal.sigwait(_STOP_SIGNALS)
        stop.set()
        wake()
        # A second signal, or the end of the grace period. The rules stay in place.
        again = (
            signal.sigwaitinfo(_STOP_SIGNALS)
            if grace_seconds is None
            else signal.sigtimedwait(_STOP_SIGNALS, grace_seconds)
        )
        os._exit(128 + again.si_signo if again is not None else 0)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
