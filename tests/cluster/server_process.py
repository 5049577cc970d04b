"""A process in a network namespace that can be stopped, killed, paused and started again."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.lab.namespace import Namespace

_EXIT_TIMEOUT = 90.0
# The kernel kills the process with its parent, even if it is paused.
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class ServerProcess:
    """A process and its log; the thread that starts it must outlive it."""

    def __init__(self, name: str, command: Sequence[str], namespace: Namespace, log: Path) -> None:
        """Start nothing yet."""
        self.name = name
        self.log = log
        self._command = [*_DIE_WITH_PARENT, *command]
        self._namespace = namespace
        self._process: subprocess.Popen[str] | None = None

    def set_command(self, command: Sequence[str]) -> None:
        """Use another command from the next start on."""
        self._command = [*_DIE_WITH_PARENT, *command]

    @property
    def command(self) -> list[str]:
        """The command of the next start."""
        return list(self._command)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped or killed."""
        return self._process is not None

    def start(self) -> None:
        """Start the process; do not wait for it."""
        assert self._process is None, f"{self.name} is running"
        with self.log.open("a") as log:
            self._process = self._namespace.popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process, which must be running."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process

    def check(self) -> None:
        """Fail if the process has exited."""
        assert self.process.poll() is None, f"{self.name} exited with status {self.process.returncode}:\n{self.tail()}"

    def wait(self) -> int:
        """Wait until the process exits; return its status."""
        return self._wait_exit()

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.terminate()
        return self._wait_exit()

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.kill()
        self._wait_exit()

    def _wait_exit(self) -> int:
        status = self.process.wait(_EXIT_TIMEOUT)
        self._process = None
        return status

    def pause(self) -> None:
        """Stop the process with SIGSTOP: its connections stay open, and it does not answer."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process."""
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the process if it is running."""
        if self._process is not None:
            self.kill()

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
