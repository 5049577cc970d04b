"""Notification of file changes: inotify, through watchfiles, and a tick for changes that inotify does not report."""

import faulthandler
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from knft.memory_errors import exit_if_out_of_memory

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

POLL_MS = 1000
"""Time between two ticks, in milliseconds. NFS and links to other folders cause no inotify event."""
_STEP_MS = 20
_RUST_STACK_BYTES = 2 << 20
CREATION_SECONDS = 30.0
"""The process ends if RustNotify needs more time to begin: it holds the GIL, so that signals are not handled."""


def watch_folders(
    folders: Callable[[], set[str]], stop: threading.Event, debounce_ms: int
) -> Iterator[frozenset[str] | None]:
    """Yield the paths that changed directly in any of ``folders()``, at least every ``POLL_MS``, until ``stop`` is set.

    The set is empty at a tick without events. It is None if events may have been lost, and whenever the folders begin
    to be watched: a caller that reads the files then misses no change. ``folders`` returns existing folders, or raises
    OSError; it is called again after each event and tick, and if its result changes, the new folders are watched.
    Events less than ``debounce_ms`` apart are yielded together.
    """
    while not stop.is_set():
        try:
            watched = folders()
            if watched:
                yield from _watch(watched, folders, stop, debounce_ms)
            else:
                stop.wait(POLL_MS / 1000)
                yield frozenset()
        except (OSError, RuntimeError) as error:
            exit_if_out_of_memory(error)
            # A watched folder was deleted, or the limit of inotify watches is reached.
            stop.wait(POLL_MS / 1000)
            yield None


def _start_to_watch(folders: set[str]) -> "RustNotify":
    """Return a RustNotify; raise RuntimeError or OSError if it cannot watch.

    If its thread does not start, RustNotify panics, and when memory is short, Rust's panic handler waits for itself for
    ever. Therefore a thread is started before, and a watchdog without Python code ends the process. There is one
    watchdog for the whole process, so only one thread may watch folders.
    """
    from watchfiles._rust_notify import RustNotify  # noqa: PLC0415 - a native library that few commands need

    _check_that_threads_start()
    faulthandler.dump_traceback_later(CREATION_SECONDS, exit=True, file=2)
    try:
        return RustNotify(
            sorted(folders),
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=False,
            ignore_permission_denied=False,
        )
    finally:
        faulthandler.cancel_dump_traceback_later()


def _check_that_threads_start() -> None:
    """Raise RuntimeError if no thread can be started. The C library keeps its stack for the next one of that size."""
    previous = threading.stack_size(_RUST_STACK_BYTES)
    try:
        thread = threading.Thread(target=lambda: None, name="watch-check", daemon=True)
        thread.start()
    finally:
        threading.stack_size(previous)
    thread.join()


def _watch(
    watched: set[str], folders: Callable[[], set[str]], stop: threading.Event, debounce_ms: int
) -> Iterator[frozenset[str] | None]:
    """Yield None when the folders are watched, then the changed paths, until ``folders()`` differs or ``stop`` is set.

    ``watchfiles.watch`` does not tell when it has begun to watch.
    """
    with _start_to_watch(watched) as watcher:
        yield None
        while folders() == watched and not stop.is_set():
            events = watcher.watch(debounce_ms, _STEP_MS, POLL_MS, stop)
            yield frozenset() if isinstance(events, str) else frozenset(path for _, path in events)
