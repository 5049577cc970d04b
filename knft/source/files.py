"""Reading of files that other programs write, without blocking and with a size limit."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from knft.errors import SourceError
from knft.source.open_writers import has_writer

MAX_BYTES = 256 << 20
"""The largest file that is read. Ten thousand Services with a hundred endpoints each need a tenth of it."""
_PIECE_BYTES = 1 << 20

_FILE_TYPES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

Signature = tuple[int, int, int, int, int]


class SettledContent(NamedTuple):
    """The content of a file that no process is writing, as far as the kernel tells.

    ``has_no_writer`` means that the kernel told that no process had the file open for writing.
    """

    data: bytes
    signature: Signature
    has_no_writer: bool


class UnsettledFileError(Exception):
    """The file may be incomplete, because another process writes it or has just written it; the text says which."""


def file_signature(path: Path) -> Signature | None:
    """Return a value that changes if the file or its permissions change; None if there is no file."""
    try:
        return _signature(path.stat())
    except OSError:
        return None


def _signature(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_same_inode(first: Signature, second: Signature) -> bool:
    """Tell whether a file was written in place, and not replaced by another one."""
    return first[:2] == second[:2]


def changed_at(signature: Signature) -> float:
    """Return when the file changed last, in seconds since 1970. Programs that copy a file do not set this time."""
    return signature[4] / 1e9


def read_manifest(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return a file's content; raise OSError, or SourceError if it is not a regular file or exceeds ``limit`` bytes."""
    with _open_manifest(path, limit) as file:
        # Not without a limit: the file may grow, and files of the kernel have no size.
        return read_stream(file, limit)


def read_named_file(path: Path) -> bytes:
    """Return the content of a file that the user named: it may be a pipe, such as a shell's ``<(command)``.

    Raises OSError, or SourceError if it is a directory or a socket or exceeds ``MAX_BYTES``.
    """
    if not (path.is_fifo() or path.is_char_device()):
        return read_manifest(path)
    with path.open("rb") as stream:
        return read_stream(stream, MAX_BYTES)


def read_stream(stream: BinaryIO, limit: int = MAX_BYTES) -> bytes:
    """Return what a stream has, such as a pipe or a device; raise OSError, or SourceError above ``limit`` bytes."""
    pieces, size = [], 0
    while piece := stream.read(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            msg = f"it is larger than the limit of {limit} bytes"
            raise SourceError(msg)
    return b"".join(pieces)


def read_settled_manifest(path: Path, is_quiet: Callable[[Signature], bool], limit: int = MAX_BYTES) -> SettledContent:
    """Return the content of a file that no process is writing; raise UnsettledFileError otherwise.

    ``is_quiet`` tells whether a file with this signature has not changed for a while; it is asked only if the kernel
    does not tell whether the file is open for writing. Raises the same errors as ``read_manifest``.
    """
    with _open_manifest(path, limit) as file:
        signature = _signature(os.fstat(file.fileno()))
        _check_settled(file.fileno(), signature, is_quiet)
        data = read_stream(file, limit)
        has_no_writer = _check_settled(file.fileno(), signature, is_quiet)
        if _signature(os.fstat(file.fileno())) != signature:
            msg = "it changed while knft read it"
            raise UnsettledFileError(msg)
        return SettledContent(data, signature, has_no_writer)


def _check_settled(descriptor: int, signature: Signature, is_quiet: Callable[[Signature], bool]) -> bool:
    """Return whether the kernel tells that the file has no writer; raise UnsettledFileError if it may have one."""
    is_written = has_writer(descriptor)
    if is_written or (is_written is None and not is_quiet(signature)):
        msg = "another process has it open for writing" if is_written else "it has just changed"
        raise UnsettledFileError(msg)
    return is_written is False


@contextmanager
def _open_manifest(path: Path, limit: int) -> Iterator[BinaryIO]:
    _check_file(path.stat(), limit)
    # O_NONBLOCK, since a FIFO may have replaced the file in the meantime.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - there is a descriptor, not a path
        _check_file(os.fstat(descriptor), limit)
        yield file


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
