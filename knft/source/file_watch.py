"""Notification of file changes: inotify, through watchfiles, and a tick for changes that inotify does not report."""

import threading
from collections.abc import Callable, Iterator

POLL_MS = 1000
"""Time between two ticks, in milliseconds. NFS and links to other folders cause no inotify event."""


def watch_folders(
    folders: Callable[[], set[str]], stop: threading.Event, debounce_ms: int
) -> Iterator[frozenset[str] | None]:
    """Yield the paths that changed directly in any of ``folders()``, at least every ``POLL_MS``, until ``stop`` is set.

    The set is empty at a tick without events, and None if events may have been lost. ``folders`` returns existing
    folders, or raises OSError; it is called again after each event and tick, and if its result changes, the new folders
    are watched. Events less than ``debounce_ms`` apart are yielded together.
    """
    from watchfiles import watch  # noqa: PLC0415 - a native library that few commands need

    while not stop.is_set():
        try:
            watched = folders()
            if not watched:
                stop.wait(POLL_MS / 1000)
                yield frozenset()
                continue
            for events in watch(
                *watched,
                watch_filter=None,
                stop_event=stop,
                debounce=debounce_ms,
                step=20,
                rust_timeout=POLL_MS,
                yield_on_timeout=True,
                recursive=False,
            ):
                yield frozenset(path for _, path in events)
                if folders() != watched:
                    break
        except (OSError, RuntimeError):  # A watched folder was deleted, or the limit of inotify watches is reached.
            stop.wait(POLL_MS / 1000)
            yield None
