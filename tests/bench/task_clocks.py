"""The exact CPU time of running threads, from the kernel's task clocks (perf_event_open(2)).

``/proc`` and the clocks of processes lack what a running thread has used since the last tick, up to 10 ms. To stop the
processes instead wakes each of their threads, and this time counts, too.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.privilege import PrivilegeError

_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_SOFTWARE, _TASK_CLOCK = 1, 1
_INHERIT, _CLOSE_ON_EXEC = 1 << 1, 1 << 3
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""The first version of struct perf_event_attr."""

_libc = ctypes.CDLL(None, use_errno=True)


class TaskClocks:
    """The clocks of all threads of some processes, and of the threads that these start later; close it after use."""

    def __init__(self, processes: Iterable[int]) -> None:
        """Start to count; raise OSError without the privilege for it."""
        self._files: list[int] = []
        try:
            for thread in _threads(processes):
                # A thread may end meanwhile.
                with suppress(ProcessLookupError):
                    self._files.append(_open(thread))
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def seconds(self) -> float:
        """Return the CPU time of all threads since the start; that of the first process is read first."""
        return sum(int.from_bytes(os.read(file, 8), "little") for file in self._files) / 1e9

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop to count."""
        while self._files:
            os.close(self._files.pop())


def require_task_clocks() -> None:
    """Raise PrivilegeError if this process cannot read the clocks of its own threads."""
    try:
        TaskClocks([os.getpid()]).close()
    except (OSError, KeyError) as error:
        msg = f"cannot read the CPU time of running threads ({error}): run this as root, on x86-64 or arm64"
        raise PrivilegeError(msg) from error


def _threads(processes: Iterable[int]) -> Iterator[int]:
    for process in processes:
        yield from (int(task.name) for task in Path(f"/proc/{process}/task").iterdir())


def _open(thread: int) -> int:
    attributes = _ATTRIBUTES.pack(_SOFTWARE, _ATTRIBUTES.size, _TASK_CLOCK, 0, 0, 0, _INHERIT, 0, 0, 0)
    file = _libc.syscall(_SYSTEM_CALLS[platform.machine()], attributes, thread, -1, -1, _CLOSE_ON_EXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), f"perf_event_open: {os.strerror(ctypes.get_errno())}")
    return int(file)
