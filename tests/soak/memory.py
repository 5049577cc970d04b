"""Measures resident memory during a soak test, and decides whether it grows."""

import ctypes
import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from statistics import median

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
ALLOWED = 4.0
"""MiB of growth allowed in the second half: a leak of 100 bytes a step makes 5 MiB in 50 000 steps."""

_libc = ctypes.CDLL(None)


class MemoryWatch:
    """Samples of the resident memory of this process and its children, in MiB.

    libnftables works in a child, for knft and for the tests. The children live as long as the history, also when knft
    restarts in it.
    """

    def __init__(self) -> None:
        self.samples: list[float] = []

    def sample(self) -> list[float]:
        """Measure, and return the resident memory of each process, this one first."""
        # Each full sync calls gc.freeze(): objects of a process that has "ended" in the test would never be freed.
        gc.unfreeze()
        gc.collect()
        _libc.malloc_trim(0)
        sizes = [_resident(process) for process in (os.getpid(), *_children())]
        self.samples.append(sum(sizes))
        return sizes

    def growth(self) -> float:
        """Return the steady growth over the second half, in MiB."""
        return steady_growth(self.samples[len(self.samples) // 2 :])


def steady_growth(samples: Sequence[float]) -> float:
    """Return the growth over samples at equal distances: the median of the slopes of all pairs, times the distance.

    With a leak nearly all pairs of samples grow. A hash table that is enlarged once, or the largest transaction of
    libnftables, is a single step: in 100 000 steps there are a few, of 2 or 3 MiB each.
    """
    slopes = [(after - before) / apart for apart, before, after in _pairs(samples)]
    return median(slopes) * (len(samples) - 1) if slopes else 0.0


def _pairs(samples: Sequence[float]) -> Iterator[tuple[int, float, float]]:
    for (first, before), (second, after) in combinations(enumerate(samples), 2):
        yield second - first, before, after


def _children() -> list[int]:
    """Return the children of this process, in the order of their ids."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process has ended.
            # pid (name) state parent ...; the name may have parentheses.
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(stat.parent.name))
    return sorted(found)


def _resident(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE / MIB
