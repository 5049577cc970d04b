"""One server of the cluster: a process in a namespace that can be stopped, killed, paused and started again."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.lab.namespace import Namespace

_PATIENCE = 90.0
# Nothing is left running when this process is killed, not even what is paused.
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class ServerProcess:
    """A process and its log; the thread that starts it must outlive it."""

    def __init__(self, name: str, command: Sequence[str], namespace: Namespace, log: Path) -> None:
        """Prepare without starting."""
        self.name = name
        self.log = log
        self._command = [*_ENDS_WITH_US, *command]
        self._namespace = namespace
        self._process: subprocess.Popen[str] | None = None

    def set_command(self, command: Sequence[str]) -> None:
        """Have another command from the next start on."""
        self._command = [*_ENDS_WITH_US, *command]

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended from here."""
        return self._process is not None

    def start(self) -> None:
        """Start it; nothing is waited for."""
        assert self._process is None, f"{self.name} runs already"
        with self.log.open("a") as log:
            self._process = self._namespace.popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process, which must have been started."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    def check(self) -> None:
        """Fail where it has ended by itself."""
        assert self.process.poll() is None, (
            f"{self.name} has ended with status {self.process.returncode}:\n{self.tail()}"
        )

    def wait(self) -> int:
        """Return its status when it has ended by itself."""
        return self._ended()

    def stop(self) -> int:
        """Ask it to end, and return its status when it has."""
        self.process.terminate()
        return self._ended()

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        status = self.process.wait(_PATIENCE)
        self._process = None
        return status

    def pause(self) -> None:
        """Have it do nothing: its connections stay open, and nobody answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it where it runs."""
        if self._process is not None:
            self.kill()

    def tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
