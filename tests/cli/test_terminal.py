"""Text on a terminal: its width and colours; a pipe gets full lines without colours."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from tests.support.knft_command import KNFT, sync_once
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import EXAMPLES, NODE
from tests.support.terminal import TerminalProcess, on_terminal, without_colours
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


@pytest.mark.kernel
def test_changes_that_diff_watches_are_folded_and_coloured(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    folder = Path(copytree(EXAMPLES, tmp_path / "manifests"))
    narrow = _watched_change(kube_proxy_node, folder, 80)
    wide = _watched_change(kube_proxy_node, folder, 200, NO_COLOR="1")

    assert re.findall(r"\x1b\[(1;\d+)m\S+ (\w+): ", narrow) == [
        ("1;33", "equal"),  # Clients would no longer reach NodePorts on the loopback address.
        ("1;31", "different"),
        ("1;33", "equal"),
    ]
    assert "; some clients would no longer reach shop/frontend" in " ".join(wide.split())
    assert "\x1b" not in wide
    for text, width in ((without_colours(narrow), 80), (wide, 200)):
        assert width / 2 < max(map(len, text.splitlines())) <= width
    assert _without_times(without_colours(narrow)) == _without_times(wide)
    assert "\n  + IPv4 shop/frontend:http, endpoints: " in narrow


def _without_times(text: str) -> list[str]:
    return re.sub(r"\S+ (?=equal|different)", "", text).split()


def _watched_change(node: Namespace, folder: Path, columns: int, **variables: str) -> str:
    """Change a manifest and restore it, while ``knft diff`` watches; end that with Ctrl-C, and return its output."""
    shop = next(path for path in folder.iterdir() if "30080" in path.read_text())
    original = shop.read_text()
    command = [*KNFT, "diff", "--live", "--watch", "-f", str(folder), *NODE]
    with node.entered(), TerminalProcess(command, columns, **variables) as process:
        process.wait_for(" equal: ")
        _replace(shop, original.replace("10.244.2.12]", "10.244.2.13]"))
        process.wait_for(" different: ")
        _replace(shop, original)
        process.wait_for(" equal: ")
        process.wait_for("\n  - IPv4 shop/frontend:http, endpoints: ")
        assert process.interrupt() == (0, "")
    return process.text


def _replace(file: Path, text: str) -> None:
    """Replace a file at once, so that nothing reads a part of it."""
    new = file.parent.with_name("new.yaml")
    new.write_text(text)
    new.replace(file)
