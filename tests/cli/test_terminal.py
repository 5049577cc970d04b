"""Text on a terminal: its width and colours; a pipe gets full lines without colours."""

import fcntl
import os
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests.cli.trace.cluster import FLAGS, write_manifests
from tests.support.knft_command import KNFT

COMMANDS = {
    "trace": ("trace", "--from", "192.0.2.99", "--to", "10.96.0.10:80/tcp", "--backend", "iptables"),
    "diff": ("diff",),
    "explain": ("explain", "shop/elsewhere"),
    "lint": ("lint",),
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def _on_terminal(command: list[str], columns: int, **variables: str) -> str:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment = {**inherited, "TERM": "xterm", **variables}
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.PIPE, env=environment):
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


@pytest.mark.parametrize("name", list(COMMANDS))
def test_text_fits_the_terminal_and_has_colours_only_there(name: str, tmp_path: Path) -> None:
    command = [*KNFT, *COMMANDS[name], "-f", str(write_manifests(tmp_path)), *FLAGS]
    piped = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    narrow, wide = _on_terminal(command, 80), _on_terminal(command, 200, NO_COLOR="1")

    assert "\x1b" not in piped
    assert "\x1b" not in wide
    assert "\x1b[" in narrow
    assert max(map(len, piped.splitlines())) > 100
    for text, width in ((_ESCAPE.sub("", narrow), 80), (wide, 200)):
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= width
        assert _without_date("".join(text.split())) == _without_date("".join(piped.split()))


def _without_date(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d\d\d:\d\dUTC", "", text)
