"""Runs a command on a terminal with a number of columns."""

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.waiting import TIMEOUT

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_INTERRUPT = b"\x03"
_LOCAL_FLAGS = 3


def without_colours(text: str) -> str:
    """Return a text without the escape sequences of colours."""
    return _ESCAPE.sub("", text)


def on_terminal(command: Sequence[str], columns: int, **variables: str) -> str:
    """Return what a command writes to its standard output, a terminal; its input is none."""
    master, slave = _open_terminal(columns)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env=_environment(variables)
    ):
        os.close(slave)
        found = b""
        while data := _read(master):
            found += data
        os.close(master)
    return found.decode().replace("\r\n", "\n")


def _open_terminal(columns: int) -> tuple[int, int]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return master, slave


def _environment(variables: dict[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return {**inherited, "TERM": "xterm", **variables}


def _read(master: int) -> bytes:
    """Return what the command has written, empty if the other end is closed."""
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""


class TerminalProcess:
    """A command whose controlling terminal is its standard input and output; it runs until Ctrl-C is typed."""

    def __init__(self, command: Sequence[str], columns: int, **variables: str) -> None:
        """Start the command."""
        self._master, slave = _open_terminal(columns)
        settings = termios.tcgetattr(slave)
        settings[_LOCAL_FLAGS] &= ~termios.ECHO  # of "^C"
        settings[_LOCAL_FLAGS] |= termios.NOFLSH  # Ctrl-C would discard what the command has written last.
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command],  # noqa: S607 - the first one in PATH
            stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=_environment(variables),
        )  # fmt: skip
        os.close(slave)
        self._output = b""
        self._position = 0

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
        os.close(self._master)

    @property
    def text(self) -> str:
        """What the command has written."""
        return self._output.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Wait until the command has written a text after those that were waited for."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.text[self._position :]:
            readable, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{text!r} did not appear in {self.text!r}"
            data = _read(self._master)
            assert data, f"the command has ended without {text!r}: {self.text!r}"
            self._output += data
        self._position = self.text.index(text, self._position) + len(text)

    def interrupt(self) -> tuple[int, str]:
        """Type Ctrl-C, and wait for the end; return the exit status, and what was written to standard error."""
        os.write(self._master, _INTERRUPT)
        while data := _read(self._master):
            self._output += data
        _, error = self._process.communicate(timeout=TIMEOUT)
        return self._process.returncode, error.decode()
