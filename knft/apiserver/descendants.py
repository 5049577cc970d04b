"""Descendants: the processes that one thread has started, and those that these have started in their turn."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def kill_descendants(thread: int) -> None:
    """Kill what the thread of this number, one of this process, has started and not waited for."""
    for process in list(_stopped(Path(f"/proc/self/task/{thread}/children"))):
        _send(process, signal.SIGKILL)


def _stopped(listing: Path) -> Iterator[int]:
    """Yield the processes that a file of /proc lists, and theirs: each stopped first, so that it starts no others."""
    for process in _listed(listing):
        _send(process, signal.SIGSTOP)
        yield process
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            yield from _stopped(task)


def _listed(listing: Path) -> list[int]:
    try:
        return [int(word) for word in listing.read_text().split()]
    except OSError:
        # The thread has ended, or this kernel does not tell.
        return []


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(process, number)
