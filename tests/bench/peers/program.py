"""The programs that load kube-proxy's layouts, with a time limit."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from typing import IO

LIMIT_SECONDS = 300.0
# The kernel kills the program when this process ends.
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
# iptables-legacy locks a file of the machine; other programs on it must not wait for the benchmark.
_OWN_LOCK = {"XTABLES_LOCKFILE": "/dev/null"}


class ProgramTimeout(Exception):  # noqa: N818 - an outcome
    """A program has exceeded the time limit, and was killed."""


class Program:
    """A command that reads rules from its standard input, in the namespace the calling thread is in."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)

    def load(self, lines: Iterable[str]) -> float:
        """Load many rules; return the seconds, or raise like ``change``."""
        return self._run((*_DIE_WITH_PARENT, *self._command), (f"{line}\n" for line in lines))

    def change(self, text: str) -> float:
        """Load a few rules; return the seconds from the start of the program to its end.

        Raises ProgramTimeout after the limit, and CalledProcessError with the program's stderr if it fails.
        """
        return self._run(self._command, (text,))

    def _run(self, command: Sequence[str], text: Iterable[str]) -> float:
        with tempfile.TemporaryFile("w+") as rules, tempfile.TemporaryFile("w+") as stderr:
            rules.writelines(text)
            rules.flush()
            rules.seek(0)
            seconds, status = _timed(command, rules, stderr)
            if seconds >= LIMIT_SECONDS:
                msg = f"did not end within {LIMIT_SECONDS:.0f} s"
                raise ProgramTimeout(msg)
            if status != 0:
                stderr.seek(0)
                raise subprocess.CalledProcessError(status, command, stderr=stderr.read(400))
        return seconds


def _timed(command: Sequence[str], rules: IO[str], stderr: IO[str]) -> tuple[float, int]:
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=rules, stdout=subprocess.DEVNULL, stderr=stderr, env=os.environ | _OWN_LOCK
    )
    # Not wait(timeout=...), which polls every 50 ms.
    limit = threading.Timer(LIMIT_SECONDS, process.kill)
    limit.start()
    status = process.wait()
    seconds = time.perf_counter() - started
    limit.cancel()
    return seconds, status
