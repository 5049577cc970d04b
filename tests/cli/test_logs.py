"""What is logged: as text or JSON, from which verbosity on, and never a credential."""

import json
import subprocess
import sys
from typing import Any

import pytest

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl-_x"  # noqa: S105 - nobody's

CODE = """
import logging, threading, warnings
from knft.cli.logs import set_up_logging
from knft.configuration.settings import LoggingSettings
set_up_logging(LoggingSettings(format={format!r}, verbosity={verbosity}))
log = logging.getLogger("knft")
{statements}
"""


def _logged(statements: str, form: str = "text", verbosity: int = 0) -> list[str]:
    code = CODE.format(format=form, verbosity=verbosity, statements=statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.stderr.splitlines()


def _objects(statements: str, verbosity: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _logged(statements, "json", verbosity)]


LEVELS = (
    "log.debug('sync')\nlog.info('first')\nlog.warning('odd')\nlog.error('bad')\n"
    "logging.getLogger('urllib3.connectionpool').debug('GET /api/v1/services 200')\n"
    "logging.getLogger('knft.latency').debug('after 1 s')\n"
    "logging.getLogger('kubernetes.client.rest').debug('response body: %s', 'secret')"
)


EVERYTHING = [
    "DEBUG sync",
    "INFO first",
    "WARNING odd",
    "ERROR bad",
    "DEBUG GET /api/v1/services 200",
    "DEBUG after 1 s",
]


@pytest.mark.parametrize(
    ("verbosity", "words"),
    [
        (0, ["INFO first", "WARNING odd", "ERROR bad"]),
        (1, ["INFO first", "WARNING odd", "ERROR bad"]),
        (2, ["DEBUG sync", "INFO first", "WARNING odd", "ERROR bad"]),
        (4, EVERYTHING),
        (9, EVERYTHING),
    ],
)
def test_levels(verbosity: int, words: list[str]) -> None:
    """Syncs from 2, requests and latencies from 4; bodies never."""
    assert [line.split(" ", 2)[2] for line in _logged(LEVELS, verbosity=verbosity)] == words


def test_an_object_a_line() -> None:
    """As Kubernetes' components write them: errors have no v, and times are in milliseconds."""
    found = _objects(LEVELS, verbosity=2)
    assert [(each["msg"], each["severity"], each.get("v")) for each in found] == [
        ("sync", "debug", 4),
        ("first", "info", 0),
        ("odd", "warning", 0),
        ("bad", "error", None),
    ]
    assert all(each["caller"].startswith("<string>:") for each in found)
    assert all(1.5e12 < each["ts"] < 1e13 for each in found)


def test_a_traceback_is_part_of_its_object() -> None:
    (found,) = _objects("try:\n    1 / 0\nexcept ZeroDivisionError:\n    log.exception('no\\nsync of %s', 'IPv4')")
    assert found["msg"] == "no\nsync of IPv4"
    assert found["err"].startswith("Traceback (most recent call last):\n")
    assert found["err"].endswith("\nZeroDivisionError: division by zero")


def test_what_nobody_catches_is_an_object_too() -> None:
    ended = "raise ValueError('main')"
    thread = "thread = threading.Thread(target=lambda: 1 / 0, name='others')\nthread.start()\nthread.join()\n"
    first, second = _objects(thread + ended)
    assert first["msg"] == "unexpected error in thread others; please report this"
    assert first["err"].endswith("ZeroDivisionError: division by zero")
    assert second["msg"] == "unexpected error; please report this"
    assert second["err"].endswith("ValueError: main")


@pytest.mark.parametrize("form", ["text", "json"])
def test_warnings_of_libraries_are_logged(form: str) -> None:
    (said,) = _logged("warnings.warn('old', DeprecationWarning, stacklevel=1)", form)[:1]
    assert "DeprecationWarning: old" in said
    assert ("WARNING" if form == "text" else '"severity": "warning"') in said


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
        f"from knft.cli import main\nmain._print_error('user.token: Bearer {TOKEN}')",
    ],
)
def test_credentials_are_never_logged(statement: str, form: str) -> None:
    said = "\n".join(_logged(statement, form))
    assert "[hidden]" in said
    assert "eyJ" not in said
    assert "0123456789abcdef" not in said


def test_other_words_are_left_as_they_are() -> None:
    words = "default/web:http of eyJ.x and a bearer of news; authorization by node, 10.96.0.10:53"
    assert _logged(f"log.warning({words!r})")[0].endswith(f"WARNING {words}")
