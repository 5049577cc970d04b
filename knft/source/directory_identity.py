"""The identity of a directory: it differs if another directory is mounted or created at the same path."""

import ctypes
import os
import struct
from functools import cache
from typing import Any

from msgspec import Struct

from knft.source.file_systems import file_system_type

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_BIRTH_TIME_OFFSET = 80


class DirectoryIdentity(Struct, frozen=True):
    """A directory's device, inode, and time of creation.

    ``created`` is in nanoseconds since 1970, 0 if the file system does not store it. Without it, a directory that was
    removed and created again may have the same inode number, and so may the roots of two tmpfs mounts.
    """

    device: int
    inode: int
    created: int = 0


def directory_identity(descriptor: int) -> DirectoryIdentity:
    """Return the identity of an open directory; raise OSError if it cannot be read."""
    status = os.fstat(descriptor)
    # The first change in a directory of a lower layer of overlayfs creates the directory in the upper layer.
    is_stable = file_system_type(status.st_dev) != "overlay"
    return DirectoryIdentity(status.st_dev, status.st_ino, _birth_time(descriptor) if is_stable else 0)


def _birth_time(descriptor: int) -> int:
    """Return the time of creation, in nanoseconds; 0 if it is unknown. Python's ``os.stat`` does not have it."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = _statx()
    if statx is None or statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer):
        return 0
    (mask,) = struct.unpack_from("I", buffer)
    if not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("qI", buffer, _BIRTH_TIME_OFFSET)
    return int(seconds * 10**9 + nanoseconds)


@cache
def _statx() -> Any:  # noqa: ANN401 - a foreign function
    """Return the C library's statx(2), None if it has none."""
    return getattr(ctypes.CDLL(None), "statx", None)
