"""CPU time and memory of a process with all its descendants, from ``/proc``."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CPUCLOCK_SCHED = 2
_CHILDREN_CPU = slice(13, 15)  # cutime and cstime, where the state is field 0


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants; nothing of those that have ended."""
    yield pid
    with suppress(OSError):
        for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in tasks.read_text().split():
                yield from descendants(int(child))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, also of those that it has waited for.

    Running processes are exact to microseconds, ended ones to a hundredth of a second for each parent.
    """
    return sum(_own_cpu(one) + _ended_children_cpu(one) for one in descendants(pid))


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and its descendants, in MiB."""
    return sum(map(_own_pss_mib, descendants(pid)))


def _own_cpu(pid: int) -> float:
    # The clock of clock_getcpuclockid(3), which Python does not have: all threads, also ended ones.
    try:
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def _ended_children_cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[_CHILDREN_CPU])) / os.sysconf("SC_CLK_TCK")


def _own_pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
