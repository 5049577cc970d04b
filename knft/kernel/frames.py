"""Messages over a pipe: a length, then as many bytes. Both ends of the library's process speak so."""

import os
import select
import struct
import time

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 20


def send(descriptor: int, message: bytes) -> None:
    """Write a whole message; raise BrokenPipeError where nobody reads."""
    rest = memoryview(_LENGTH.pack(len(message)) + message)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int, seconds: float | None = None) -> bytes:
    """Read a whole message.

    Raises EOFError where the other end is gone, and TimeoutError where it did not come within ``seconds``.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size, deadline))
    return _read(descriptor, length, deadline)


def _read(descriptor: int, length: int, deadline: float | None) -> bytes:
    read = bytearray()
    while len(read) < length:
        if deadline is not None and not _is_readable(descriptor, deadline - time.monotonic()):
            msg = "no answer in time"
            raise TimeoutError(msg)
        piece = os.read(descriptor, min(_PIECE, length - len(read)))
        if not piece:
            msg = "the other end is gone"
            raise EOFError(msg)
        read += piece
    return bytes(read)


def _is_readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
