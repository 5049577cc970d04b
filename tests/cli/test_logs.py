"""The log: its text and JSON formats, its verbosity, and that credentials are never written."""

import json
import logging
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from knft.cli.logs import TextLines, time_zone
from tests.support.log_lines import log_lines

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl-_x"  # noqa: S105 - not a real token

CODE = """
import logging, threading, warnings
from knft.cli.logs import set_up_logging
from knft.configuration.settings import LoggingSettings
set_up_logging(LoggingSettings(format={format!r}, verbosity={verbosity}))
log = logging.getLogger("knft")
{statements}
"""


def _log_lines(statements: str, form: str = "text", verbosity: int = 0) -> list[str]:
    code = CODE.format(format=form, verbosity=verbosity, statements=statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.stderr.splitlines()


def _log_objects(statements: str, verbosity: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _log_lines(statements, "json", verbosity)]


LOG_STATEMENTS = (
    "log.debug('sync')\nlog.info('first')\nlog.warning('odd')\nlog.error('bad')\n"
    "logging.getLogger('urllib3.connectionpool').debug('GET /api/v1/services 200')\n"
    "logging.getLogger('knft.latency').debug('after 1 s')\n"
    "logging.getLogger('kubernetes.client.rest').debug('response body: %s', 'secret')"
)


LINES_OF_LEVEL_0 = [("I", "first"), ("W", "odd"), ("E", "bad")]
LINES_OF_LEVEL_2 = [("I", "sync"), *LINES_OF_LEVEL_0]
ALL_LINES = [*LINES_OF_LEVEL_2, ("I", "GET /api/v1/services 200"), ("I", "after 1 s")]


@pytest.mark.parametrize(
    ("verbosity", "expected"),
    [
        (0, LINES_OF_LEVEL_0),
        (1, LINES_OF_LEVEL_0),
        (2, LINES_OF_LEVEL_2),
        (3, LINES_OF_LEVEL_2),
        (4, ALL_LINES),
        (9, ALL_LINES),
    ],
)
def test_verbosity_selects_log_lines(verbosity: int, expected: list[tuple[str, str]]) -> None:
    """Syncs need verbosity 2, requests and latencies 4; response bodies are never logged."""
    assert log_lines("\n".join(_log_lines(LOG_STATEMENTS, verbosity=verbosity))) == expected


def test_text_lines_have_the_header_of_klog() -> None:
    """Month, day and local time with microseconds, process, file and line; an error that ends the process is F."""
    (line,) = _log_lines("log.warning('odd')")
    (fatal, *traceback) = _log_lines("1 / 0")
    assert re.fullmatch(r"W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ <string>:\d+\] odd", line)
    assert log_lines(fatal) == [("F", "unexpected error; please report this")]
    assert traceback[0] == "Traceback (most recent call last):"


def test_time_zone_is_that_of_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-05:30")
    time.tzset()
    record = logging.makeLogRecord({"created": 1.25, "levelno": logging.INFO, "filename": "a.py", "lineno": 7})
    text = TextLines().format(record)
    found = (time_zone(), text.split()[:2])
    monkeypatch.undo()
    time.tzset()
    assert found == ("UTC+05:30", ["I0101", "05:30:01.250000"])


def test_json_format_writes_one_object_per_line() -> None:
    """The format is that of Kubernetes' components: errors have no v, and times are in milliseconds."""
    found = _log_objects(LOG_STATEMENTS, verbosity=2)
    assert [(each["msg"], each["severity"], each.get("v")) for each in found] == [
        ("sync", "debug", 2),
        ("first", "info", 0),
        ("odd", "warning", 0),
        ("bad", "error", None),
    ]
    assert [each.get("v", 0) for each in _log_objects(LOG_STATEMENTS, verbosity=4)] == [2, 0, 0, 0, 4, 4]
    assert all(each["caller"].startswith("<string>:") for each in found)
    assert all(1.5e12 < each["ts"] < 1e13 for each in found)


def test_json_object_contains_the_traceback() -> None:
    (found,) = _log_objects("try:\n    1 / 0\nexcept ZeroDivisionError:\n    log.exception('no\\nsync of %s', 'IPv4')")
    assert found["msg"] == "no\nsync of IPv4"
    assert found["err"].startswith("Traceback (most recent call last):\n")
    assert found["err"].endswith("\nZeroDivisionError: division by zero")


def test_uncaught_exceptions_are_json_objects() -> None:
    statement = "raise ValueError('main')"
    thread = "thread = threading.Thread(target=lambda: 1 / 0, name='others')\nthread.start()\nthread.join()\n"
    first, second = _log_objects(thread + statement)
    assert first["msg"] == "unexpected error in thread others; please report this"
    assert first["err"].endswith("ZeroDivisionError: division by zero")
    assert second["msg"] == "unexpected error; please report this"
    assert second["err"].endswith("ValueError: main")


@pytest.mark.parametrize("form", ["text", "json"])
def test_record_that_cannot_be_formatted_is_reported(form: str) -> None:
    (line, *rest) = _log_lines("log.info('%d endpoints', 'no')", form)
    assert "cannot format the log line of <string>:7; please report this" in line
    assert "TypeError: %d format: a real number is required, not str" in (rest[-1] if form == "text" else line)


@pytest.mark.parametrize("form", ["text", "json"])
def test_warnings_of_libraries_are_logged(form: str) -> None:
    (line,) = _log_lines("warnings.warn('old', DeprecationWarning, stacklevel=1)", form)[:1]
    assert "DeprecationWarning: old" in line
    assert line.startswith("W") if form == "text" else '"severity": "warning"' in line


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "statement",
    [
        f"log.warning('sent Authorization: Bearer {TOKEN}')",
        f"log.warning('headers: %s', {{'authorization': 'Bearer {TOKEN}'}})",
        f"log.warning('headers: %s', {{'Authorization': 'Basic {TOKEN[:20]}'}})",
        "log.warning('bearer 0123456789abcdef')",
        f"log.warning('the token %s was refused', '{TOKEN}')",
        f"try:\n    raise ValueError('Bearer {TOKEN}')\nexcept ValueError:\n    log.exception('failed')",
        f"warnings.warn('{TOKEN}', UserWarning, stacklevel=1)",
        f"raise ValueError('Bearer {TOKEN}')",
        f"thread = threading.Thread(target=int, args=['Bearer {TOKEN}'])\nthread.start()\nthread.join()",
        f"class Broken:\n    def __del__(self):\n        raise ValueError('Bearer {TOKEN}')\nBroken()",
        f"from knft.cli import error_output\nerror_output.print_error('user.token: Bearer {TOKEN}')",
    ],
)
def test_credentials_are_never_logged(statement: str, form: str) -> None:
    log = "\n".join(_log_lines(statement, form))
    assert "[hidden]" in log
    assert "eyJ" not in log
    assert "0123456789abcdef" not in log


def test_text_without_credentials_is_unchanged() -> None:
    text = "default/web:http of eyJ.x and a bearer of news; authorization by node, 10.96.0.10:53"
    assert log_lines(_log_lines(f"log.warning({text!r})")[0]) == [("W", text)]
