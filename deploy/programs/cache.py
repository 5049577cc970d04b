"""The cache outside the checkout: folders that are made once, with a name that depends on their inputs."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_UNUSED_DAYS = 30


def cache_folder() -> Path:
    """Return the cache's folder; create it if it is missing."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "knft", "cluster")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the cache during the block: a second run waits for the first."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def creating(folder: Path, label: str = "programs") -> Iterator[Path]:
    """Yield an empty folder; rename it to ``folder`` when the block succeeds, so that a failed one leaves nothing.

    ``label`` begins the lines that are printed.
    """
    print(f"{label}: making {folder}", flush=True)
    started = time.monotonic()
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    yield partial
    partial.rename(folder)
    print(f"{label}: made in {time.monotonic() - started:.0f} s", flush=True)


def mark_used(folder: Path) -> None:
    """Record that a folder was used, and delete its siblings that have not been used for long."""
    os.utime(folder)
    for other in folder.parent.iterdir():
        # Another process may rename or delete a folder meanwhile.
        with suppress(FileNotFoundError):
            if other.is_dir() and other.stat().st_mtime < time.time() - _UNUSED_DAYS * 24 * 3600:
                shutil.rmtree(other)
