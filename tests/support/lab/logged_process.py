"""A process whose log is a file: what it has said, and waiting for something no longer than it lives."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .namespace import Namespace

HANG = 60.0
"""Seconds after which a test gives up; nothing is measured."""


class LoggedProcess:
    """A command in a namespace; its standard error is the log."""

    def __init__(self, namespace: Namespace, command: Sequence[str], log: Path) -> None:
        """Start it."""
        self._log = log
        with log.open("w") as file:
            self.process = namespace.popen(command, stderr=file)

    def said(self) -> str:
        """Return what it has logged."""
        return self._log.read_text()

    def until(self, condition: Callable[[], bool], seconds: float = HANG) -> None:
        """Wait for a condition; fail with the log after so many seconds, or where the process has ended."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.01)
