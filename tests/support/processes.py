"""Helper processes of tests."""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends; a child calls it first in ``main``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def worker_processes(parent: int) -> list[int]:
    """Return the processes of libnftables that knft with this process id has started, also after it has ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if b"knft.kernel.worker" in arguments and str(parent).encode() in arguments:
                found.append(int(process.name))
    return found


def child_processes(parent: int) -> list[int]:
    """Return the processes that the threads of a running process have started and that it has not waited for."""
    found: list[int] = []
    for thread in Path(f"/proc/{parent}/task").iterdir():
        with suppress(OSError):  # The thread has ended.
            found += map(int, (thread / "children").read_text().split())
    return found


def is_running(process: int) -> bool:
    """Tell whether a process exists and is no zombie, which waits only for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_of_pod(uid: str) -> Iterator[int]:
    """Yield the ids of a pod's processes, as this process sees them."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"pod{uid}/" in (process / "cgroup").read_text():
                yield int(process.name)
