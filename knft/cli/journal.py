"""Priorities of log lines for systemd's journal: a prefix of each line, as sd-daemon(3) describes."""

import logging
import os
from collections.abc import Mapping

VARIABLE = "JOURNAL_STREAM"
"""This environment variable has the device and the inode of the socket that leads to the journal."""

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def is_journal(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Return whether a file descriptor leads to the journal: a child process may have the variable, but a pipe."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get(VARIABLE) == f"{found.st_dev}:{found.st_ino}"


def add_priority(level: int, text: str) -> str:
    """Return text with a prefix for a level of the logging module before each line: each becomes an entry."""
    priority = next((number for least, number in _PRIORITIES if level >= least), _DEBUG)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))
