"""Resident memory over a soak, and whether it is flat."""

import ctypes
import gc
import os
from pathlib import Path
from statistics import median

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
ALLOWED = 4.0
"""MiB by which the second half may end above where it began: a leak of 100 bytes in 50 000 steps is 5 MiB."""

_libc = ctypes.CDLL(None)


class Watch:
    """Samples of this process's resident memory, in MiB."""

    def __init__(self) -> None:
        self.samples: list[float] = []

    def sample(self) -> float:
        """Return what is in use now: garbage is collected, and free memory given back, before it is looked at."""
        # Each full sync freezes what there is, in a test also what a process that has "ended" leaves behind.
        gc.unfreeze()
        gc.collect()
        _libc.malloc_trim(0)
        self.samples.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / MIB)
        return self.samples[-1]

    def growth(self) -> float:
        """Return by how many MiB the last quarter's median is above the second quarter's.

        The first quarter fills caches; medians, because a single sample may meet a large pool.
        """
        quarter = len(self.samples) // 4
        return median(self.samples[-quarter:]) - median(self.samples[quarter : 2 * quarter])
