"""Runs a command on a terminal with a number of columns."""

import fcntl
import os
import re
import struct
import subprocess
import termios
from collections.abc import Sequence

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Return a text without the escape sequences of colours."""
    return _ESCAPE.sub("", text)


def on_terminal(command: Sequence[str], columns: int, **variables: str) -> str:
    """Return what a command writes to its standard output, a terminal; its input is none."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment = {**inherited, "TERM": "xterm", **variables}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env=environment):
        os.close(slave)
        found = b""
        while True:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            found += data
        os.close(master)
    return found.decode().replace("\r\n", "\n")
