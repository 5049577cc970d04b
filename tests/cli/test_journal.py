"""Priorities of log lines for systemd's journal."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from knft.cli.journal import add_priority, is_journal
from tests.support.knft_command import KNFT

CODE = """
import logging, sys
from knft.cli.logs import print_error, set_up_logging
from knft.configuration.settings import LoggingSettings
set_up_logging(LoggingSettings(format=sys.argv[1], verbosity=2))
log = logging.getLogger("knft")
log.debug("sync")
log.info("first")
log.warning("odd\\nagain")
log.error("bad")
log.critical("worst")
log.info("%d endpoints", "no")
print_error("no such file")
1 / 0
"""


def _written(tmp_path: Path, command: list[str], *, is_journal: bool = True) -> list[str]:
    """Return what a command writes to a standard error that JOURNAL_STREAM names, or does not name."""
    log = tmp_path / "log"
    with log.open("w") as file:
        status = os.fstat(file.fileno())
        stream = f"{status.st_dev}:{status.st_ino if is_journal else status.st_ino + 1}"
        subprocess.run(command, stderr=file, env={**os.environ, "JOURNAL_STREAM": stream}, check=False)
    return log.read_text().splitlines()


@pytest.mark.parametrize("form", ["text", "json"])
def test_each_line_has_its_priority(tmp_path: Path, form: str) -> None:
    lines = _written(tmp_path, [sys.executable, "-c", CODE, form])
    found = [re.match(r"<(\d)>", line) for line in lines]
    assert all(found), lines
    priorities = "".join(match[1] for match in found if match)
    # The critical line about the exception at the end has a traceback, in text on lines of its own.
    assert re.fullmatch("76443233+32+" if form == "text" else "76432332", priorities), lines
    assert any("odd" in line for line in lines)


def test_other_readers_get_no_priorities(tmp_path: Path) -> None:
    lines = _written(tmp_path, [sys.executable, "-c", CODE, "text"], is_journal=False)
    assert any("odd" in line for line in lines)
    assert not any(line.startswith("<") for line in lines)


@pytest.mark.parametrize("is_journal", [True, False])
def test_error_before_the_log_is_set_up_has_a_priority(tmp_path: Path, *, is_journal: bool) -> None:
    lines = _written(tmp_path, [*KNFT, "run", "--config", str(tmp_path / "missing")], is_journal=is_journal)
    assert len(lines) == 1
    assert lines[0].startswith("<3>knft: " if is_journal else "knft: ")


def test_invalid_flag_is_one_entry_with_a_priority(tmp_path: Path) -> None:
    lines = _written(tmp_path, [*KNFT, "cleanup", "--cleanup-twice"])
    assert len(lines) == 1
    assert lines[0].startswith("<3>knft: ")
    assert "--cleanup-twice" in lines[0]
    unchanged = _written(tmp_path, [*KNFT, "cleanup", "--cleanup-twice"], is_journal=False)
    assert unchanged[0].startswith("Usage: ")


def test_closed_descriptor_is_no_journal() -> None:
    assert not is_journal(987654, {"JOURNAL_STREAM": "1:1"})


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_empty_line_is_an_entry(level: int) -> None:
    number = 7 if level == logging.DEBUG else 6
    assert add_priority(level, "a\n\nb") == f"<{number}>a\n<{number}>\n<{number}>b"
