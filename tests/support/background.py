"""Work in a background thread for the duration of a block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def run_in_background(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run ``work`` in a thread during the block. At its end, set the event that ``work`` got, and join the thread."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=[stop], name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
