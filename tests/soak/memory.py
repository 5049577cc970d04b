"""Measures memory during a soak test, and decides whether it grows."""

import ctypes
import gc
import os
import re
import sys
import tempfile
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


class _Mallinfo(ctypes.Structure):
    """What the C library reports about its heap, in bytes (struct mallinfo2)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


_libc.mallinfo2.restype = _Mallinfo


class MemoryWatch:
    """Samples of the memory of this process and its children, in MiB: resident memory; with ``in_use``, for
    this process what its objects and buffers use.

    In a test that has its own large models in this process, the largest one decides how much is resident: of the 1 MiB
    pieces of Python's allocator, nearly all stay, because of a few objects in each. What is in use shows a leak.

    libnftables works in a child, for knft and for the tests. The children live as long as the history, also when knft
    restarts in it.
    """

    def __init__(self, *, in_use: bool = False) -> None:
        self._in_use = in_use
        self.samples: list[float] = []

    def sample(self) -> list[float]:
        """Measure, and return the memory of each process, this one first."""
        # Each full sync calls gc.freeze(): objects of a process that has "ended" in the test would never be freed.
        gc.unfreeze()
        gc.collect()
        _libc.malloc_trim(0)
        own = used_mib() if self._in_use else resident_mib(os.getpid())
        sizes = [own, *map(resident_mib, _children())]
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


def used_mib() -> float:
    """Return how many MiB the objects and buffers of this process have, without free and fragmented memory."""
    with tempfile.TemporaryFile("w+") as output:
        saved = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            sys._debugmallocstats()  # Only this function tells, and it prints.
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        output.seek(0)
        found = re.search(r"# bytes in allocated blocks += +([\d,]+)", output.read())
    assert found is not None
    heap = _libc.mallinfo2()
    return (int(found[1].replace(",", "")) + int(heap.uordblks) + int(heap.hblkhd)) / MIB


def resident_mib(process: int) -> float:
    """Return the resident memory of a process, in MiB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE / MIB
