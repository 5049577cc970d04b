"""A shell in a terminal, into which a test types a command line."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PROMPT = "ready:"
"""The test's configuration of the shell must set this prompt."""
_SECONDS = 60.0
_ROWS, _COLUMNS = 50, 250
_TO_START, _TO_END = "\x01", "\x05"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0AB]?|\r")


class InteractiveShell:
    """Runs a shell in a pseudo-terminal; its line editor has Emacs's keys."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start the shell in a folder, and wait for its prompt."""
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self._output = ""
        self.wait_for(PROMPT)

    def __enter__(self) -> Self:
        """Return the shell."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def press(self, keys: str) -> None:
        """Type characters; "\\t" is the Tab key."""
        os.write(self._master, keys.encode())

    def wait_for(self, *texts: str) -> None:
        """Wait until the terminal has received all texts since the last call."""
        deadline = time.monotonic() + _SECONDS
        while not all(text in self._output for text in texts):
            readable, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{texts} did not appear in {self._output!r}"
            self._output += _ESCAPES.sub("", os.read(self._master, 1 << 16).decode(errors="replace"))
        self._received, self._output = self._output, ""

    def words(self, keys: str) -> list[str]:
        """Type a command line and return its words, as the shell's completion has changed them; do not run it."""
        self.press(f"{keys}{_TO_START}printf '<%s>\\n' {_TO_END} end-of-words\r")
        self.wait_for("<end-of-words>", PROMPT)
        return re.findall(r"<([^<>\n]*)>\n", self._received)[:-1]
