"""Reading files that somebody else makes: nothing is waited for, and nothing without end is read."""

import os
import stat
from pathlib import Path

from knft.errors import SourceError

MAX_BYTES = 256 << 20
"""The largest file that is read; ten thousand Services with a hundred endpoints each need a tenth of it."""

_SORTS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

Signature = tuple[int, int, int, int, int]


def file_signature(path: Path) -> Signature | None:
    """Return what changes when a file does, or may be read where it could not; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_manifest(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return what a file holds; raise OSError or SourceError where it is not a file, or larger than ``limit`` bytes."""
    _refuse(path.stat(), limit)
    # Whatever takes the file's place now, opening it does not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - there is a descriptor, not a path
        _refuse(os.fstat(descriptor), limit)
        return file.read()


def _refuse(status: os.stat_result, limit: int) -> None:
    sort = next((words for applies, words in _SORTS if applies(status.st_mode)), None)
    if sort is not None:
        msg = f"it is {sort}, not a file"
        raise SourceError(msg)
    if status.st_size > limit:
        msg = f"it has {status.st_size} bytes, and {limit} are the most that are read"
        raise SourceError(msg)


def format_path(path: object) -> str:
    """Return a path as a message may show it, in one line whatever characters it has."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def error_reason(error: Exception) -> str:
    """Return why a file cannot be read."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
