"""Measurements: percentiles, CPU time, memory of processes and of the kernel."""

import ctypes
import gc
import resource
import time
from collections.abc import Sequence
from pathlib import Path

_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")
# The kernel allocates large tables in whole pages (counted as slab) or by vmalloc, small objects from slabs.
_KERNEL_FIELDS = ("SUnreclaim", "VmallocUsed", "Percpu")
_SETTLED_KIB, _PAUSE_SECONDS = 64, 0.2


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile ``share``, between 0 and 1, by the nearest-rank method."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def resident_mib(pid: int | str = "self") -> float:
    """Return a process's resident memory, in MiB; 0 if it has ended."""
    status = Path(f"/proc/{pid}/status")
    return _fields(status, ("VmRSS",)) / 1024 if status.exists() else 0.0


def process_cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def peak_mib() -> float:
    """Return the largest resident memory since ``reset_peak``, in MiB."""
    return _fields(_STATUS, ("VmHWM",)) / 1024


def reset_peak() -> None:
    """Reset the largest resident memory."""
    Path("/proc/self/clear_refs").write_text("5")


def trimmed_mib() -> float:
    """Return unused memory of the C library to the kernel, and return the resident memory after that, in MiB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_mib()


class CollectorClock:
    """The seconds that Python's garbage collector has taken since this object was made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._started = now
        else:
            self.seconds += now - self._started


def kernel_kib(settle_seconds: float) -> int:
    """Return the memory that the kernel holds for itself and cannot reclaim, in KiB, once it has settled.

    It is that of the whole machine, so other processes change it too. The kernel frees destroyed tables in the
    background, so this waits until two measurements agree, at most ``settle_seconds``. The error is about 1 MiB on an
    idle machine.
    """
    deadline = time.monotonic() + settle_seconds
    before = _fields(_MEMORY, _KERNEL_FIELDS)
    while time.monotonic() < deadline:
        time.sleep(min(_PAUSE_SECONDS, settle_seconds))
        now = _fields(_MEMORY, _KERNEL_FIELDS)
        if abs(now - before) < _SETTLED_KIB:
            return now
        before = now
    return before


def children_cpu_seconds() -> float:
    """Return the CPU time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def children_peak_mib() -> float:
    """Return the largest resident memory of a child that has ended, in MiB; never below this process's own."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _fields(path: Path, names: Sequence[str]) -> int:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return sum(int(value.split()[0]) for name, _, value in lines if name in names)
