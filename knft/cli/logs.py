"""What is logged, and how: lines of text, or an object of JSON a line as Kubernetes' components write them.

Credentials never get into a log: whatever looks like a bearer token is written over, whoever logs it.
"""

import json
import logging
import re
import sys
import threading
from types import TracebackType
from typing import Any

from knft.configuration.settings import LoggingSettings

SYNCS_FROM, REQUESTS_FROM = 2, 4
"""The verbosities from which every sync is logged, and what others are asked, and how old changes were (A.8)."""

HIDDEN = "[hidden]"
_CREDENTIAL = re.compile(
    r"(?i)(\bbearer[ \t]+|\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?(?:basic|bearer)?[ \t]*)[A-Za-z0-9._~+/=-]{8,}"
    # A JSON Web Token, as those of ServiceAccounts are: three parts, the first of which begins like any JSON object.
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
)

_HTTP = "urllib3.connectionpool"
"""Logs each request's method, path and status, and nothing of headers and bodies."""
_LATENCY = "knft.latency"
"""Logs how old the changes were that a sync has put in force."""

_QUIET, _DEBUG = 0, 4
"""What klog's verbosity is of lines that everybody gets, and of those for debugging."""


def set_up_logging(settings: LoggingSettings) -> None:
    """Log to standard error as ``settings`` say, warnings and uncaught exceptions too; to be called once."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    logging.getLogger("knft").setLevel(logging.DEBUG if settings.verbosity >= SYNCS_FROM else logging.INFO)
    logging.getLogger(_HTTP).setLevel(logging.DEBUG if settings.verbosity >= REQUESTS_FROM else logging.WARNING)
    logging.getLogger(_LATENCY).setLevel(logging.DEBUG if settings.verbosity >= REQUESTS_FROM else logging.INFO)
    # Python's own would write an exception's words as they are, and no object.
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_of_thread


def writes_json() -> bool:
    """Tell whether the log is one of objects."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def hide_credentials(text: str) -> str:
    """Return a text with a word in the place of whatever looks like a token."""
    return _CREDENTIAL.sub(lambda found: (found[1] or "") + HIDDEN, text)


class TextLines(logging.Formatter):
    """Time, level and message; tracebacks follow on lines of their own."""

    def __init__(self) -> None:
        """Have the only form there is."""
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return hide_credentials(super().format(record))


class JsonLines(logging.Formatter):
    """One object a line: ``ts`` in milliseconds since 1970, ``caller``, ``msg``, ``v`` or ``err``, and ``severity``.

    As component-base's JSON format has it, where errors have no ``v``; ``err`` is a traceback. ``severity`` is beside
    it, since without it nobody could tell a warning.
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
            line["v"] = _QUIET if record.levelno >= logging.INFO else _DEBUG
        if record.exc_info:
            line["err"] = hide_credentials(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    logging.getLogger("knft").critical("unexpected error; please report this", exc_info=(kind, error, traceback))


def _log_uncaught_of_thread(arguments: threading.ExceptHookArgs) -> None:
    error = arguments.exc_value
    if error is not None and not isinstance(error, SystemExit):
        name = arguments.thread.name if arguments.thread is not None else "unknown"
        exc_info = (type(error), error, arguments.exc_traceback)
        logging.getLogger("knft").error("unexpected error in thread %s; please report this", name, exc_info=exc_info)
