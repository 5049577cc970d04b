"""Ends the processes that a thread has started, and their descendants."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_SECONDS = 0.01


def end_descendants(thread_id: int, termination_seconds: float) -> None:
    """End the children that a thread of this process has started and not waited for, with all their descendants.

    ``thread_id`` is the kernel's number of the thread. The process groups of the children get SIGTERM, for example to
    remove temporary files. What is left after ``termination_seconds`` is killed.
    """
    children_file = Path(f"/proc/self/task/{thread_id}/children")
    children = _read_children(children_file)
    groups = [process for process in children if _leads_group(process)]
    for group in groups:
        _signal(-group, signal.SIGTERM)
    deadline = time.monotonic() + termination_seconds
    while groups and _read_children(children_file) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for process in list(_stop_tree(children_file)):
        _signal(process, signal.SIGKILL)
    for group in groups:
        _signal(-group, signal.SIGKILL)


def _leads_group(process: int) -> bool:
    try:
        return os.getpgid(process) == process
    except OSError:
        return False


def _stop_tree(children_file: Path) -> Iterator[int]:
    """Yield the children that a file of /proc lists, and their descendants.

    Each process is stopped before its children are read, so that it cannot start more of them.
    """
    for process in _read_children(children_file):
        _signal(process, signal.SIGSTOP)
        yield process
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            yield from _stop_tree(task)


def _read_children(children_file: Path) -> list[int]:
    try:
        return [int(word) for word in children_file.read_text().split()]
    except OSError:
        # The thread has ended, or the kernel has no CONFIG_PROC_CHILDREN.
        return []


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(process, number)
