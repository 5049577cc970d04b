"""``knft diff --live --watch``: both sides are compared again whenever one changes."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.comparison.examples import EXAMPLES, NODE, in_force, legacy_programs, load_iptables
from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

HANG = 120.0
"""Seconds after which a test gives up; nothing is measured."""


class Watching:
    """A watch, whose lines are read one by one."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log, self._read = process, log, 0

    def next(self) -> dict[str, Any]:
        """Return the next result."""
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            lines = self._log.read_text().split("\n")[:-1]
            if len(lines) > self._read:
                self._read += 1
                found: dict[str, Any] = json.loads(lines[self._read - 1])["result"]
                return found
            assert self._process.poll() is None, "the watch has ended"
            time.sleep(0.05)
        msg = "no result came"
        raise AssertionError(msg)

    def end(self, how: signal.Signals) -> tuple[int, int]:
        """End it; return its status, and how many results nobody has read."""
        self._process.send_signal(how)
        status = self._process.wait(HANG)
        return status, len(self._log.read_text().split("\n")) - 1 - self._read


@contextmanager
def _watching(node: Namespace, folder: Path, *flags: str) -> Iterator[Watching]:
    log = folder / "results"
    with log.open("w") as file:
        process = node.popen([*KNFT, "diff", "--live", "--watch", "-o", "json", *flags], stdout=file)
    try:
        yield Watching(process, log)
    finally:
        process.kill()
        process.wait()


def test_deleted_and_restored_rule_are_new_results(served: Namespace, tmp_path: Path) -> None:
    """knft's own table is there too; nothing is printed in between, and nothing on the machine changes."""
    knft(served, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    before = in_force(served)
    rules = served.run(["iptables-nft-save", "-t", "nat"]).stdout.splitlines()
    (number, rule) = next(
        (number, line)
        for number, line in enumerate((it for it in rules if it.startswith("-A KUBE-SERVICES ")), start=1)
        if "10.96.0.10" in line
    )
    with _watching(served, tmp_path) as watch:
        assert watch.next()["state"] == "equal"
        served.run(["sh", "-e"], stdin=f"iptables-nft -t nat -D {rule.removeprefix('-A ')}")
        apart = watch.next()
        assert apart["state"] == "different"
        assert {item["service"] for item in apart["differences"]} == {"shop/frontend:http"}
        back = rule.removeprefix("-A KUBE-SERVICES ")
        served.run(["sh", "-e"], stdin=f"iptables-nft -t nat -I KUBE-SERVICES {number} {back}")
        assert watch.next()["state"] == "equal"
        assert watch.end(signal.SIGTERM) == (0, 0)
    assert in_force(served) == before


def test_changed_manifest_is_compared(served: Namespace, tmp_path: Path) -> None:
    folder = Path(copytree(EXAMPLES, tmp_path / "manifests"))
    with _watching(served, tmp_path, "-f", str(folder), *NODE) as watch:
        assert watch.next()["state"] == "equal"
        shop = next(path for path in folder.iterdir() if "30080" in path.read_text())
        text = shop.read_text()
        shop.write_text(text.replace("10.244.2.12]", "10.244.2.13]"))
        apart = watch.next()
        assert "endpoints" in {item["cause"] for item in apart["differences"]}
        shop.write_text(text)
        assert watch.next()["state"] == "equal"
        assert watch.end(signal.SIGINT) == (0, 0)


def test_removed_node_address_is_compared(served: Namespace, tmp_path: Path) -> None:
    """kube-proxy's NodePorts are wherever the node is, knft's at the address that the Node object says."""
    with _watching(served, tmp_path, "-f", str(EXAMPLES), *NODE) as watch:
        assert watch.next()["state"] == "equal"
        served.run(["ip", "address", "delete", "192.0.2.11/32", "dev", "lo"])
        assert {item["family"] for item in watch.next()["differences"]} == {"IPv4"}
        assert watch.end(signal.SIGTERM)[0] == 0


def test_changes_without_notification_are_polled(node: Namespace, tmp_path: Path) -> None:
    """Rules of iptables-legacy; a state that cannot be compared is told too, and tried again."""
    (tmp_path / "programs").mkdir()
    programs = legacy_programs(tmp_path / "programs")
    with _watching(node, tmp_path, "-f", str(EXAMPLES), *NODE) as watch:
        assert "no rules of kube-proxy and no table of knft" in watch.next()["error"]
        load_iptables(node, programs)
        while (found := watch.next())["state"] != "equal":
            pass
        assert "iptables-legacy" in found["left"]
        node.run(["iptables-legacy", "-t", "nat", "-F", "KUBE-NODEPORTS"])
        assert {item["service"] for item in watch.next()["differences"]} == {"shop/frontend:http"}
        assert watch.end(signal.SIGTERM)[0] == 0


def test_text_output_has_a_line_with_the_time(served: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "lines"
    with log.open("w") as file:
        process = served.popen([*KNFT, "diff", "--live", "--watch", "-f", str(EXAMPLES), *NODE], stdout=file)
    deadline = time.monotonic() + HANG
    while not log.read_text().endswith("\n") and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(HANG) == 0
    (line,) = log.read_text().splitlines()
    assert line[:4].isdigit()
    assert " equal: packets have the same outcome in kube-proxy on this machine" in line
