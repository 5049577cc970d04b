"""Resident memory over a soak, and whether it is flat."""

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
"""MiB by which the second half may grow: a leak of 100 bytes a step makes 5 MiB in 50 000 steps."""

_libc = ctypes.CDLL(None)


class MemoryWatch:
    """Samples of the resident memory of this process and of those it has started, in MiB.

    Theirs counts because libnftables works there, for knft as for the tests, and grows with what it is asked. They
    live as long as the history, however often knft starts anew in it.
    """

    def __init__(self) -> None:
        self.samples: list[float] = []

    def sample(self) -> list[float]:
        """Return what each process has in use now, this one first."""
        # Each full sync freezes what there is, in a test also what a process that has "ended" leaves behind.
        gc.unfreeze()
        gc.collect()
        _libc.malloc_trim(0)
        sizes = [_resident(process) for process in (os.getpid(), *_children())]
        self.samples.append(sum(sizes))
        return sizes

    def growth(self) -> float:
        """Return by how many MiB the second half would grow if it went on as it does most of the time."""
        return steady_growth(self.samples[len(self.samples) // 2 :])


def steady_growth(samples: Sequence[float]) -> float:
    """Return the growth over samples at equal distances: the median of the slopes of all pairs, times the distance.

    A leak grows between nearly all pairs. A table that is made larger once, or a largest transaction of libnftables',
    is a step: in 100 000 steps there are some of 2 or 3 MiB, with nothing but noise for 30 000 steps between them.
    """
    slopes = [(after - before) / apart for apart, before, after in _pairs(samples)]
    return median(slopes) * (len(samples) - 1) if slopes else 0.0


def _pairs(samples: Sequence[float]) -> Iterator[tuple[int, float, float]]:
    for (first, before), (second, after) in combinations(enumerate(samples), 2):
        yield second - first, before, after


def _children() -> list[int]:
    """Return the processes that this one has started, in their order."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has ended.
            # The name is in parentheses, and may have some; the state comes next, and then the parent.
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(stat.parent.name))
    return sorted(found)


def _resident(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE / MIB
