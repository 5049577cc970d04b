"""Reading of manifest files that other programs write, without blocking and with a size limit."""

import os
import stat
from pathlib import Path

from knft.errors import SourceError

MAX_BYTES = 256 << 20
"""The largest file that is read. Ten thousand Services with a hundred endpoints each need a tenth of it."""

_FILE_TYPES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

Signature = tuple[int, int, int, int, int]


def file_signature(path: Path) -> Signature | None:
    """Return a value that changes if the file or its permissions change; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_manifest(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return a file's content; raise OSError, or SourceError if it is not a regular file or exceeds ``limit`` bytes."""
    _check_file(path.stat(), limit)
    # O_NONBLOCK, since a FIFO may have replaced the file in the meantime.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - there is a descriptor, not a path
        _check_file(os.fstat(descriptor), limit)
        return file.read()


def _check_file(status: os.stat_result, limit: int) -> None:
    file_type = next((description for is_type, description in _FILE_TYPES if is_type(status.st_mode)), None)
    if file_type is not None:
        msg = f"it is {file_type}, not a regular file"
        raise SourceError(msg)
    if status.st_size > limit:
        msg = f"it has {status.st_size} bytes; the limit is {limit}"
        raise SourceError(msg)


def format_path(path: object) -> str:
    """Return a path for a message, in one line."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def error_reason(error: Exception) -> str:
    """Return why a file cannot be read."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
