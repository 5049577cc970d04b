"""LogHandler: passes the records of the logging module to a LogWriter."""

import atexit
import logging
import math
import sys
import time
from collections.abc import Callable
from types import TracebackType

from knft.app.log_writer import LogWriter
from knft.cli.line_limit import MAX_LINES, LineLimit
from knft.memory_errors import exit_if_out_of_memory

EXIT_SECONDS = 5.0
"""How long the process waits at its end until its log lines are written. After a signal it exits sooner."""

AddPriority = Callable[[int, str], str]
"""Returns a text whose lines tell its level to the program that reads them."""

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | None


class LogHandler(logging.Handler):
    """Formats each record in the thread that logs, and passes its line to a LogWriter for a file descriptor."""

    def __init__(self, formatter: logging.Formatter, descriptor: int, add_priority: AddPriority | None = None) -> None:
        """Write to ``descriptor``; with ``add_priority``, write what it returns for the level and text of a record."""
        super().__init__()
        self.setFormatter(formatter)
        self._add_priority = add_priority or (lambda _, text: text)
        self._limit = LineLimit()
        self.writer = LogWriter(descriptor, self._format_report, self._write_due_summaries)
        # Not in ``flush``: logging.shutdown calls that with the handler's lock, so that other threads could not log.
        atexit.register(self._write_all)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return self._add_priority(record.levelno, super().format(record))

    def write_error(self, text: str) -> None:
        """Write an error in a format of its own."""
        self.writer.write(self._add_priority(logging.ERROR, text))

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on the line of a record."""
        try:
            if self._is_admitted(record):
                self.writer.write(self.format(record))
        except Exception as error:  # noqa: BLE001 - as in the handlers of the standard library
            exit_if_out_of_memory(error)
            self.handleError(record)

    def _is_admitted(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record: the number of warnings and errors of one place in the code is limited."""
        if record.levelno < logging.WARNING:
            return True
        place = (record.pathname, record.lineno)
        number = self._limit.count(place, record.getMessage(), time.monotonic())
        if number == MAX_LINES + 1:
            self.writer.wake()  # So that it waits no longer than until the summary is due.
        return number <= MAX_LINES

    def _write_due_summaries(self) -> float | None:
        """Log how many lines were not logged in past intervals; return in how many seconds the next summary is due."""
        now = time.monotonic()
        self._write_summaries(now)
        return self._limit.next_summary(now)

    def _write_summaries(self, now: float) -> None:
        for text in self._limit.take_summaries(now):
            self.writer.write(self._format(logging.WARNING, "%s", text))

    def _write_all(self) -> None:
        """Write the summaries of all intervals, and all lines."""
        self._write_summaries(math.inf)
        self.writer.flush(EXIT_SECONDS)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Log why a record could not be formatted; logging's own method could block."""
        text, where = "cannot format the log line of %s:%d; please report this", (record.filename, record.lineno)
        self.writer.write(self._format(logging.ERROR, text, *where, exc_info=sys.exc_info()))

    def _format_report(self, dropped: int) -> str:
        return self._format(logging.WARNING, "dropped %d log lines because standard error did not accept them", dropped)

    def _format(self, level: int, text: str, *values: object, exc_info: _ExcInfo = None) -> str:
        return self.format(logging.LogRecord("knft", level, __file__, 0, text, values, exc_info))
