# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Messages over a pipe, each prefixed with its length: between WorkerProcess and its worker."""

import os
import select
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 16
"""The size of a pipe's buffer."""


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
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            if deadline is None:
                raise
            deadline.wait(_poll(descriptor, select.POLLOUT))


class MessageReader:
    """Reads the messages that arrive at one end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        """Only this reader may read from ``descriptor``."""
        self._descriptor = descriptor
        self._received = bytearray()
        """The bytes that were read and not returned: a small message is read together with its length."""

    def receive(self, timeout: Timeout | None = None) -> bytes:
        """Return the next message.

        Raises EOFError if the writer is gone, and TimeoutError if the message does not arrive within ``timeout``.
        """
        deadline = None if timeout is None else _Deadline(timeout)
        end = _LENGTH.size
        self._read_up_to(end, deadline)
        end += _LENGTH.unpack_from(self._received)[0]
        self._read_up_to(end, deadline)
        message = bytes(memoryview(self._received)[_LENGTH.size : end])
        del self._received[:end]
        return message

    def _read_up_to(self, size: int, deadline: _Deadline | None) -> None:
        while len(self._received) < size:
            if deadline is not None:
                deadline.wait(_poll(self._descriptor, select.POLLIN))
            piece = os.read(self._descriptor, _PIECE)
            if not piece:
                msg = "the other end of the pipe is closed"
                raise EOFError(msg)
            self._received += piece


def _poll(descriptor: int, event: int) -> select.poll:
    poll = select.poll()
    poll.register(descriptor, event)
    return poll
