"""A process whose standard error is a file: reading the log, and waiting for a condition while the process runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

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
        wait_until(condition, self.log_text, self._check_running, timeout=seconds)

    def _check_running(self) -> None:
        assert self.process.poll() is None, self.log_text()
