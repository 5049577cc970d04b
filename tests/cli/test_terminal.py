"""Text on a terminal: its width and colours; a pipe gets full lines without colours."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.knft_command import KNFT, sync_once
from tests.support.lab.namespace import Namespace
from tests.support.terminal import on_terminal, without_colours
from tests.support.traced_cluster import FLAGS, write_manifests

COMMANDS = {
    "trace": ("trace", "--from", "192.0.2.99", "--to", "10.96.0.10:80/tcp", "--backend", "iptables"),
    "diff": ("diff",),
    "explain": ("explain", "shop/elsewhere"),
    "lint": ("lint",),
}
ANSWERED = ("preflight", "status", "history", "top")
"""Commands that ask the running knft or this machine (``tests.cli.answered``)."""
WITHOUT_COLOURS = ("history", "top")
SHORTENED = ("top",)
"""Commands that shorten names instead of wrapping lines."""


def _command(name: str, folder: Path) -> list[str]:
    if name in ANSWERED:
        return [sys.executable, "-m", "tests.cli.answered", name]
    return [*KNFT, *COMMANDS[name], "-f", str(write_manifests(folder)), *FLAGS]


@pytest.mark.parametrize("name", [*COMMANDS, *ANSWERED])
def test_text_fits_the_terminal_and_has_colours_only_there(name: str, tmp_path: Path) -> None:
    command = _command(name, tmp_path)
    piped = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    narrow, wide = on_terminal(command, 80), on_terminal(command, 200, NO_COLOR="1")

    assert "\x1b" not in piped
    assert "\x1b" not in wide
    assert ("\x1b[" in narrow) is (name not in WITHOUT_COLOURS)
    assert max(map(len, piped.splitlines())) > 100
    for text, width in ((without_colours(narrow), 80), (wide, 200)):
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= width
        assert name in SHORTENED or _without_date("".join(text.split())) == _without_date("".join(piped.split()))


def _without_date(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d\d\d:\d\dUTC", "", text)


def test_versions_are_folded_on_a_terminal_only() -> None:
    command = [*KNFT, "version"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    narrow = on_terminal(command, 40)
    assert narrow.split() == piped.split()
    assert len(narrow.splitlines()) > len(piped.splitlines())


@pytest.mark.parametrize("command", ["render", "completion"])
def test_output_for_programs_is_not_folded(command: str, tmp_path: Path) -> None:
    flags = ("-f", str(write_manifests(tmp_path)), *FLAGS) if command == "render" else ("bash",)
    argv = [*KNFT, command, *flags]
    piped = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert max(map(len, piped.splitlines())) > 80
    assert on_terminal(argv, 80) == piped


@pytest.mark.kernel
def test_steps_of_a_cleanup_are_folded_on_a_terminal_only(tmp_path: Path) -> None:
    namespace = Namespace.create("cleanup")
    try:
        sync_once(namespace, write_manifests(tmp_path).parent)
        command = [*KNFT, "cleanup", "--dry-run"]
        piped = namespace.run(command).stdout
        with namespace.entered():
            narrow = on_terminal(command, 40)
    finally:
        namespace.close()
    assert narrow.split() == piped.split()
    assert max(map(len, narrow.splitlines())) <= 40 < max(map(len, piped.splitlines()))
