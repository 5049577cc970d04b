"""LogWriter: writes log lines to standard error, and never delays the thread that logs.

    any thread ──write──▶ queue of limited size ──own thread──▶ standard error

Standard error can block at any time: a pipe whose reader hangs, a stopped terminal. Then lines wait in the queue. When
it is full, further lines are dropped until standard error accepts lines again and the queue is empty; a line then
reports how many were dropped. See docs/operations/index.md#logs.
"""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

MAX_QUEUED_BYTES = 1 << 20
"""Total size of the lines that wait while standard error blocks: thousands of lines."""
_PIECE = select.PIPE_BUF
"""When poll() reports that a pipe is writable, a write of this size does not block."""
_PAUSE_SECONDS = 0.01


class _Line:
    """A queued line."""

    def __init__(self, data: bytes, reported_count: int = 0) -> None:
        self.unwritten = memoryview(data)
        self.size = len(data)
        self.reported_count = reported_count
        """How many dropped lines this line reports; 0 if it is no report."""


class LogWriter:
    """Writes lines in their order, to one file descriptor. Any thread may use it.

    Until ``start`` is called, the thread that logs writes what the descriptor accepts at once: a process that drops its
    capabilities, or forks, must not have other threads before.
    """

    def __init__(
        self,
        descriptor: int,
        format_report: Callable[[int], str],
        before_wait: Callable[[], float | None] = lambda: None,
    ) -> None:
        """``format_report`` returns the line that reports a number of dropped lines.

        The thread calls ``before_wait`` when the queue is empty, and again after the seconds that it returns, or after
        ``wake``. It may call ``write``.
        """
        self._descriptor = descriptor
        self._format_report = format_report
        self._before_wait = before_wait
        self._changed = threading.Condition()
        self._queue: deque[_Line] = deque()
        self._queued_bytes = 0
        self._is_dropping = False
        self._unreported = 0
        self._has_thread = False
        self.dropped_lines = 0
        """Number of lines that were dropped, because the queue was full or the descriptor refused them."""

    def write(self, line: str) -> None:
        """Queue a line without its line break, or drop it if the queue is full. Never blocks."""
        data = f"{line}\n".encode(errors="backslashreplace")
        with self._changed:
            if self._queue and self._queued_bytes + len(data) > MAX_QUEUED_BYTES:
                self._is_dropping = True
            if self._is_dropping:
                self._record_drop()
            else:
                self._enqueue(_Line(data))
            if not self._has_thread:
                self._write_queue(time.monotonic())

    def start(self) -> None:
        """Write the lines in a thread from now on. Call it once."""
        with self._changed:
            self._has_thread = True
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def wake(self) -> None:
        """Let the thread call ``before_wait``."""
        with self._changed:
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all lines are written, at most so many seconds; return whether they are."""
        with self._changed:
            if self._has_thread:
                return self._changed.wait_for(lambda: not self._queue, seconds)
            return self._write_queue(time.monotonic() + seconds)

    def discard(self) -> None:
        """Forget the queued lines, in a child process after a fork: the parent process writes them."""
        self._queue.clear()
        self._queued_bytes, self._is_dropping, self._unreported = 0, False, 0

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    seconds = self._before_wait()
                    if not self._queue:
                        self._changed.wait(seconds)
                line = self._queue[0]
            is_written = self._write_line(line, None)
            with self._changed:
                self._dequeue(line, is_written=is_written)

    def _write_queue(self, deadline: float) -> bool:
        """Write the queued lines in the calling thread, which holds the lock; return whether all were written."""
        while self._queue:
            line = self._queue[0]
            try:
                is_written = self._write_line(line, deadline)
            except TimeoutError:
                return False
            self._dequeue(line, is_written=is_written)
        return True

    def _write_line(self, line: _Line, deadline: float | None) -> bool:
        """Write a line; return False if the descriptor refuses it. Raises TimeoutError at the deadline."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while line.unwritten:
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not poll.poll(None if seconds is None else seconds * 1000):
                raise TimeoutError
            try:
                line.unwritten = line.unwritten[os.write(self._descriptor, line.unwritten[:_PIECE]) :]
            except BlockingIOError:  # A non-blocking descriptor that has less space than this piece.
                if seconds == 0:
                    raise TimeoutError from None
                time.sleep(_PAUSE_SECONDS)
            except OSError:  # The reader is gone, or the disk is full.
                return False
        return True

    def _enqueue(self, line: _Line) -> None:
        self._queue.append(line)
        self._queued_bytes += line.size
        self._changed.notify_all()

    def _dequeue(self, line: _Line, *, is_written: bool) -> None:
        """Remove the first line; after the last one, report the dropped lines."""
        self._queue.popleft()
        self._queued_bytes -= line.size
        if not is_written and line.reported_count:
            self._unreported += line.reported_count
        elif not is_written:
            self._record_drop()
        if not self._queue:
            self._is_dropping = False
            # A descriptor that refuses lines would refuse the report as well.
            if self._unreported and is_written:
                self._enqueue(_Line(f"{self._format_report(self._unreported)}\n".encode(), self._unreported))
                self._unreported = 0
        self._changed.notify_all()

    def _record_drop(self) -> None:
        self.dropped_lines += 1
        self._unreported += 1
