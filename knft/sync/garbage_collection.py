"""Tuning of Python's garbage collector: a large cluster is millions of long-lived objects without cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from knft.heap import trim_heap

GC_THRESHOLD = 50_000
"""Net allocations that start a collection (gc.set_threshold); a sync of one change makes a few hundred objects."""


def tune_garbage_collector() -> None:
    """Collect rarely, because reference counting frees nearly everything that knft drops; never look at the modules."""
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    gc.freeze()


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the collector during a ``with`` block.

    In a sync of 100 000 endpoints, it takes 10 % of the time and frees nothing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def freeze_and_trim(*, collect: bool) -> None:
    """Exempt all objects from later collections, and return free memory to the system.

    Without ``collect``, garbage in reference cycles stays forever. A first sync without errors makes none, and a search
    of all its objects takes a tenth of its CPU time (90 ms with 10 000 Services).
    """
    if collect:
        gc.collect()
    gc.freeze()
    trim_heap()
