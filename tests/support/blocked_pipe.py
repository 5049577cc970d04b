"""A pipe as the standard error of a process: it is full, and nobody reads it until the test does."""

import os
from contextlib import suppress


class BlockedPipe:
    """A pipe that blocks every writer until the test reads."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._received = b""
        self.fill()

    def fill(self) -> None:
        """Write zero bytes until the pipe is full."""
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, bytes(os.sysconf("SC_PAGESIZE")))
        os.set_blocking(self.writer, True)

    def text(self) -> str:
        """Read what the pipe contains; return everything that has been read so far, without the zero bytes."""
        with suppress(BlockingIOError):
            while piece := os.read(self.reader, 1 << 16):
                self._received += piece
        return self._received.replace(b"\0", b"").decode()

    def close(self) -> None:
        """Close both ends; one may be closed already."""
        for descriptor in (self.reader, self.writer):
            with suppress(OSError):
                os.close(descriptor)
