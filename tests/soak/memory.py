"""Resident memory over a soak, and whether it is flat."""

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path
from statistics import median

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
ALLOWED = 4.0
"""MiB by which the second half may end above where it began: a leak of 100 bytes in 50 000 steps is 5 MiB."""

_libc = ctypes.CDLL(None)


class Watch:
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
        """Return by how many MiB the last quarter's median is above the second quarter's.

        The first quarter fills caches; medians, because a single sample may meet a large pool.
        """
        quarter = len(self.samples) // 4
        return median(self.samples[-quarter:]) - median(self.samples[quarter : 2 * quarter])


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
