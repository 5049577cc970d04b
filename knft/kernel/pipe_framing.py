# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Messages over a pipe, each prefixed with its length: between WorkerProcess and its worker."""

import os
import select
import struct
import time

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 20


def send(descriptor: int, message: bytes, seconds: float | None = None) -> None:
    """Write a whole message.

    Raises BrokenPipeError if the reader is gone. With ``seconds`` the descriptor must be non-blocking, and TimeoutError
    is raised if the reader does not read everything in that time.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    rest = memoryview(_LENGTH.pack(len(message)) + message)
    while rest:
        _await(descriptor, select.POLLOUT, deadline)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue


def receive(descriptor: int, seconds: float | None = None) -> bytes:
    """Read a whole message.

    Raises EOFError if the writer is gone, and TimeoutError if the message does not arrive within ``seconds``.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size, deadline))
    return _read(descriptor, length, deadline)


def _read(descriptor: int, length: int, deadline: float | None) -> bytes:
    read = bytearray()
    while len(read) < length:
        _await(descriptor, select.POLLIN, deadline)
        piece = os.read(descriptor, min(_PIECE, length - len(read)))
        if not piece:
            msg = "the other end of the pipe is closed"
            raise EOFError(msg)
        read += piece
    return bytes(read)


def _await(descriptor: int, event: int, deadline: float | None) -> None:
    if deadline is None:
        return
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        msg = "timed out waiting for the pipe"
        raise TimeoutError(msg)
