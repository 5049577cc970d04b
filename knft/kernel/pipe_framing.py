# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Messages over a pipe, each prefixed with its length: between WorkerProcess and its worker."""

import os
import select
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 20


class Timeout(NamedTuple):
    """How long to wait for the process at the other end of a pipe, in seconds."""

    seconds: float
    """After this time TimeoutError is raised."""
    warning_seconds: float
    """After this time ``warn`` is called, once for each message."""
    warn: Callable[[], None]


class _Deadline:
    """When a message must be complete."""

    def __init__(self, timeout: Timeout) -> None:
        started = time.monotonic()
        self._ends = started + timeout.seconds
        self._warns = started + timeout.warning_seconds
        self._warn: Callable[[], None] | None = timeout.warn

    def wait(self, poll: select.poll) -> None:
        """Wait for an event; raise TimeoutError."""
        if self._warn is not None and self._warns < self._ends:
            if poll.poll(_milliseconds_until(self._warns)):
                return
            self._warn()
            self._warn = None
        if not poll.poll(_milliseconds_until(self._ends)):
            msg = "timed out waiting for the pipe"
            raise TimeoutError(msg)


def _milliseconds_until(moment: float) -> float:
    return max(0.0, moment - time.monotonic()) * 1000


def send(descriptor: int, message: bytes, timeout: Timeout | None = None) -> None:
    """Write a whole message.

    Raises BrokenPipeError if the reader is gone. With ``timeout`` the descriptor must be non-blocking, and TimeoutError
    is raised if the reader does not read everything in that time.
    """
    deadline = None if timeout is None else _Deadline(timeout)
    rest = memoryview(_LENGTH.pack(len(message)) + message)
    while rest:
        _await(descriptor, select.POLLOUT, deadline)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue


def receive(descriptor: int, timeout: Timeout | None = None) -> bytes:
    """Read a whole message.

    Raises EOFError if the writer is gone, and TimeoutError if the message does not arrive within ``timeout``.
    """
    deadline = None if timeout is None else _Deadline(timeout)
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size, deadline))
    return _read(descriptor, length, deadline)


def _read(descriptor: int, length: int, deadline: _Deadline | None) -> bytes:
    read = bytearray()
    while len(read) < length:
        _await(descriptor, select.POLLIN, deadline)
        piece = os.read(descriptor, min(_PIECE, length - len(read)))
        if not piece:
            msg = "the other end of the pipe is closed"
            raise EOFError(msg)
        read += piece
    return bytes(read)


def _await(descriptor: int, event: int, deadline: _Deadline | None) -> None:
    if deadline is None:
        return
    poll = select.poll()
    poll.register(descriptor, event)
    deadline.wait(poll)
