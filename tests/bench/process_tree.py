"""CPU time and memory of a process with all its descendants, from ``/proc``."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_CPUCLOCK_SCHED = 2
_POLL_SECONDS, _STOP_SECONDS = 0.0005, 5.0
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

    It is exact to microseconds for waiting threads. For a running thread, the time since the last tick may be missing
    (thread_group_cputime of Linux 6.18). Ended processes are exact to a hundredth of a second for each parent.
    """
    return sum(own_cpu_seconds(one) + _ended_children_cpu(one) for one in descendants(pid))


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes, so that their CPU times are exact, and let them continue at the end; children first."""
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        while any(state not in "TZX" for pid in pids for state in _thread_states(pid)):
            if time.monotonic() > deadline:
                msg = f"processes {pids} do not stop"
                raise TimeoutError(msg)
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        for pid in pids:
            _send(pid, signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # It has ended.
        os.kill(pid, number)


def is_busy(pid: int) -> bool:
    """Tell whether a thread of a process or of its descendants runs, waits for a CPU, or for the disk."""
    return any(state in "RD" for one in descendants(pid) for state in _thread_states(one))


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and its descendants, in MiB."""
    return sum(map(own_pss_mib, descendants(pid)))


def own_pss_mib(pid: int, field: str = "Pss:") -> float:
    """Return the proportional set size of one process, or a field of smaps_rollup, in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process and its descendants, in MiB; pages that they share count once.

    Unlike the proportional set size, it does not depend on other programs that use the same files.
    """
    return sum(_largest_of_each_file(map(_resident_by_mapping, descendants(pid)))) / 1024


def _largest_of_each_file(processes: Iterable[dict[str, int]]) -> Iterator[int]:
    """Yield the sizes of all anonymous mappings, and for each part of a file the largest size in any process."""
    files: dict[str, int] = {}
    for process in processes:
        for mapping, size in process.items():
            if mapping:
                files[mapping] = max(size, files.get(mapping, 0))
            else:
                yield size
    yield from files.values()


def _resident_by_mapping(pid: int) -> dict[str, int]:
    """Return the resident KiB of each part of a file by its offset and path, and under "" that of anonymous memory."""
    sizes: dict[str, int] = {}
    mapping = ""
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            _, permissions, offset, device, inode, *path = words
            mapping = f"{device} {inode} {offset} {path[0]}" if int(inode) else ""
            is_private = "w" in permissions and "p" in permissions
            mapping = "" if is_private else mapping
        elif words[0] == "Rss:":
            sizes[mapping] = sizes.get(mapping, 0) + int(words[1])
    return sizes


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU time of one process, as exact as ``cpu_seconds``; 0 if it has ended."""
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


def _thread_states(pid: int) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            yield thread.read_text().rpartition(")")[2].split()[0]
