"""SIGTERM and SIGINT, as an event."""

import os
import signal
import threading
from collections.abc import Callable


def stop_on_signals(wake: Callable[[], None] = lambda: None) -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; a thread waits for them, so that no handler interrupts a sync.

    ``wake`` is called after it is set.
    """
    stop = threading.Event()
    awaited = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

    def wait() -> None:
        signal.sigwait(awaited)
        stop.set()
        wake()
        # Asked again: whatever a sync is waiting for is not worth waiting for. The rules stay as they are.
        os._exit(128 + signal.sigwait(awaited))

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
