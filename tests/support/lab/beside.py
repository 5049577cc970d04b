"""Something that goes on in a thread of its own during a block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Do ``work`` during the block; it ends once the event it is given is set, and is waited for."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=[stop], name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
