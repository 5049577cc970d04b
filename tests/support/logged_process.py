"""A process whose standard error is a file: reading the log, and waiting for a condition while the process runs."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.lab.namespace import Namespace

TIMEOUT = 120.0
"""Seconds after which a test gives up. Nothing is measured by it, so it is long."""


class LoggedProcess:
    """A command that runs in a namespace; its standard error is the log."""

    def __init__(self, namespace: Namespace, command: Sequence[str], log: Path) -> None:
        """Start the command."""
        self._log = log
        with log.open("w") as file:
            self.process = namespace.popen(command, stderr=file)

    def log_text(self) -> str:
        """Return the log."""
        return self._log.read_text()

    def wait_until(self, condition: Callable[[], bool], seconds: float = TIMEOUT) -> None:
        """Return once the condition holds; fail with the log after so many seconds, or if the process has ended."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.log_text()
            assert self.process.poll() is None, self.log_text()
            time.sleep(0.01)
