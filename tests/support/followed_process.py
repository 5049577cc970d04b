"""A process whose lines of standard error a test waits for, in order."""

import queue
import subprocess
import threading
import time
from collections.abc import Sequence

import pytest

from tests.support.lab.namespace import Namespace
from tests.support.waiting import TIMEOUT


class FollowedProcess:
    """A command that runs in a namespace; each wait continues after the line that the previous one found."""

    def __init__(self, namespace: Namespace, command: Sequence[str]) -> None:
        """Start the command."""
        self.process = namespace.popen(list(command), stderr=subprocess.PIPE)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self._lines.put(line)

    def wait_for_line(self, end: str) -> str:
        """Wait for a line that ends with a text; return it."""
        lines: list[str] = []
        deadline = time.monotonic() + TIMEOUT
        while not any(line.endswith(f"{end}\n") for line in lines[-1:]):
            try:
                lines.append(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                pytest.fail(f"no line ends with {end!r}: {''.join(lines)}")
        return lines[-1]

    def kill(self) -> None:
        """Kill the process, and return when it has ended."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
