"""Text on a terminal: its width and colours; a pipe gets full lines without colours."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.trace.cluster import FLAGS, write_manifests
from tests.support.knft_command import KNFT
from tests.support.terminal import on_terminal, without_colours

COMMANDS = {
    "trace": ("trace", "--from", "192.0.2.99", "--to", "10.96.0.10:80/tcp", "--backend", "iptables"),
    "diff": ("diff",),
    "explain": ("explain", "shop/elsewhere"),
    "lint": ("lint",),
}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_text_fits_the_terminal_and_has_colours_only_there(name: str, tmp_path: Path) -> None:
    command = [*KNFT, *COMMANDS[name], "-f", str(write_manifests(tmp_path)), *FLAGS]
    piped = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    narrow, wide = on_terminal(command, 80), on_terminal(command, 200, NO_COLOR="1")

    assert "\x1b" not in piped
    assert "\x1b" not in wide
    assert "\x1b[" in narrow
    assert max(map(len, piped.splitlines())) > 100
    for text, width in ((without_colours(narrow), 80), (wide, 200)):
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= width
        assert _without_date("".join(text.split())) == _without_date("".join(piped.split()))


def _without_date(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d\d\d:\d\dUTC", "", text)
