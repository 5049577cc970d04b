"""Sets up logging: lines of klog's text format, or one JSON object per line as Kubernetes components write them.

Credentials are never logged: the formatters replace everything that looks like a bearer token. A blocked standard
error delays nothing: see LogWriter.
"""

import json
import logging
import os
import sys
import threading
import time
from types import TracebackType
from typing import Any

from knft.app.log_writer import LogWriter
from knft.cli.log_handler import AddPriority, LogHandler
from knft.configuration.settings import LoggingSettings
from knft.memory_errors import exit_if_out_of_memory, set_report
from knft.redaction import hide_credentials

VERBOSITY_OF_SYNCS, VERBOSITY_OF_REQUESTS = 2, 4
"""The verbosities that log every sync, and API requests and programming latencies.

See docs/behaviour/tracking.md#programming-latency.
"""

_HTTP = "urllib3.connectionpool"
"""This logger logs method, path and status of each request, without headers and bodies."""
_LATENCY = "knft.latency"
"""This logger logs the age of the changes in each sync."""

REPORT_SECONDS = 0.5
"""How long the report about failed allocations may take."""


def set_up_logging(settings: LoggingSettings) -> LogWriter:
    """Log to standard error, including warnings and uncaught exceptions. Call it once.

    Write nowhere if standard error was closed when the process started.
    """
    descriptor = sys.stderr.fileno() if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY)
    formatter = JsonLines() if settings.format == "json" else TextLines()
    handler = LogHandler(formatter, descriptor, _priorities(descriptor))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    logging.getLogger("knft").setLevel(logging.DEBUG if settings.verbosity >= VERBOSITY_OF_SYNCS else logging.INFO)
    logging.getLogger(_HTTP).setLevel(logging.DEBUG if settings.verbosity >= VERBOSITY_OF_REQUESTS else logging.WARNING)
    logging.getLogger(_LATENCY).setLevel(logging.DEBUG if settings.verbosity >= VERBOSITY_OF_REQUESTS else logging.INFO)
    # Python's own hook would print credentials, and no JSON.
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_of_thread
    sys.unraisablehook = _log_unraisable
    set_report(lambda text: _log_critical(handler.writer, text))
    return handler.writer


def _priorities(descriptor: int) -> AddPriority | None:
    """Return the function that adds priorities to lines for systemd's journal; None for other readers."""
    if "JOURNAL_STREAM" not in os.environ:
        return None
    from knft.cli.journal import add_priority, is_journal  # noqa: PLC0415 - for systemd alone

    return add_priority if is_journal(descriptor, os.environ) else None


def _log_critical(writer: LogWriter, text: str) -> bool:
    logging.getLogger("knft").critical("%s", text)
    return writer.flush(REPORT_SECONDS)


def print_error(message: str) -> bool:
    """Print an error of a command after the log lines, as JSON if the log is JSON; False before ``set_up_logging``."""
    for handler in logging.getLogger().handlers:
        if not isinstance(handler, LogHandler):
            continue
        if isinstance(handler.formatter, JsonLines):
            logging.getLogger("knft").error("%s", message)
        else:
            handler.write_error(f"knft: {hide_credentials(message)}")
        return True
    return False


def verbosity_of(record: logging.LogRecord) -> int:
    """Return the lowest verbosity that logs a record."""
    if record.levelno >= logging.INFO:
        return 0
    return VERBOSITY_OF_REQUESTS if record.name in (_HTTP, _LATENCY) else VERBOSITY_OF_SYNCS


class TextLines(logging.Formatter):
    """Lines of klog's text format, the default of Kubernetes components; tracebacks follow on separate lines.

    The header is ``Lmmdd hh:mm:ss.uuuuuu pid file:line]``. L is I, W, E, or F for an error that ends the process; lines
    of a higher verbosity have I too. The time is local time: klog has no time zone (docs/operations/index.md#logs).
    """

    def __init__(self) -> None:
        """Set the format."""
        super().__init__("%(klog_header)s] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        severity = "I" if record.levelno < logging.WARNING else _SEVERITIES.get(record.levelno, "E")
        seconds, fraction = divmod(int(record.created * 1e6), 10**6)
        time_text = time.strftime("%m%d %H:%M:%S", time.localtime(seconds))
        where = f"{record.filename}:{record.lineno}"
        record.klog_header = f"{severity}{time_text}.{fraction:06d} {record.process:>7} {where}"
        return hide_credentials(super().format(record))


_SEVERITIES = {logging.WARNING: "W", logging.CRITICAL: "F"}


def time_zone() -> str:
    """Return the time zone of the times in text lines, such as ``UTC+01:00``."""
    offset = time.strftime("%z", time.localtime())
    return f"UTC{offset[:3]}:{offset[3:]}"


class JsonLines(logging.Formatter):
    """One JSON object per line, in the format of Kubernetes' component-base.

    ``ts`` is in milliseconds since 1970, ``caller`` a file and line, ``err`` a traceback; errors have no ``v``.
    ``severity`` is an addition: without it warnings could not be recognised.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": hide_credentials(record.getMessage()),
            "severity": record.levelname.lower(),
        }
        if record.levelno < logging.ERROR:
            line["v"] = verbosity_of(record)
        if record.exc_info:
            line["err"] = hide_credentials(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    exit_if_out_of_memory(error)
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    logging.getLogger("knft").critical("unexpected error; please report this", exc_info=(kind, error, traceback))


def _log_uncaught_of_thread(arguments: threading.ExceptHookArgs) -> None:
    error = arguments.exc_value
    exit_if_out_of_memory(error)
    if error is not None and not isinstance(error, SystemExit):
        name = arguments.thread.name if arguments.thread is not None else "unknown"
        exc_info = (type(error), error, arguments.exc_traceback)
        logging.getLogger("knft").error("unexpected error in thread %s; please report this", name, exc_info=exc_info)


def _log_unraisable(error: "sys.UnraisableHookArgs") -> None:
    """Log an exception that Python cannot raise, such as one of a destructor."""
    exit_if_out_of_memory(error.exc_value)
    exc_info = (error.exc_type, error.exc_value, error.exc_traceback)
    name = getattr(error.object, "__qualname__", type(error.object).__name__)
    log = logging.getLogger("knft")
    log.error("unexpected error in %s; please report this", name, exc_info=exc_info)  # type: ignore[arg-type]
