"""``knft diff --live --watch``: each change of either side gives a new comparison."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import EXAMPLES, NODE, legacy_programs, load_iptables, machine_state
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

TIMEOUT = 120.0
"""Seconds after which a test fails; no duration is measured."""


class WatchProcess:
    """A process of ``knft diff --watch -o json``, whose results are read one by one."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log, self._read_count = process, log, 0

    def next(self) -> dict[str, Any]:
        """Return the next result."""
        wait_until(lambda: len(self._lines()) > self._read_count, "no result within the timeout", self._check_running)
        found: dict[str, Any] = json.loads(self._lines()[self._read_count])["result"]
        self._read_count += 1
        return found

    def _lines(self) -> list[str]:
        """Return the complete lines."""
        return self._log.read_text().split("\n")[:-1]

    def _check_running(self) -> None:
        assert self._process.poll() is None, "the process has exited"

    def stop(self, signal_number: signal.Signals) -> tuple[int, int]:
        """Stop the process with a signal; return its exit status and the number of unread results."""
        self._process.send_signal(signal_number)
        status = self._process.wait(TIMEOUT)
        return status, len(self._lines()) - self._read_count


@contextmanager
def _watch_process(node: Namespace, folder: Path, *flags: str) -> Iterator[WatchProcess]:
    log = folder / "results"
    with log.open("w") as file:
        process = node.popen([*KNFT, "diff", "--live", "--watch", "-o", "json", *flags], stdout=file)
    try:
        yield WatchProcess(process, log)
    finally:
        process.kill()
        process.wait()


def test_rules_without_services_are_not_called_equal(node: Namespace, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "empty.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    knft(node, "run", "--once", "--manifests", str(manifests), *NODE)
    node.run(["iptables-nft", "-t", "nat", "-N", "KUBE-SERVICES"])
    with _watch_process(node, tmp_path) as watch:
        found = watch.next()
        assert (found["state"], found["error"]) == ("nothing", "neither side has a Service")


def test_deleted_and_restored_rules_give_new_results(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    """knft's table exists too; there is no other result, and the watch changes nothing on the machine."""
    knft(kube_proxy_node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    before = machine_state(kube_proxy_node)
    rules = kube_proxy_node.run(["iptables-nft-save", "-t", "nat"]).stdout.splitlines()
    (number, rule) = next(
        (number, line)
        for number, line in enumerate((each for each in rules if each.startswith("-A KUBE-SERVICES ")), start=1)
        if "10.96.0.10" in line
    )
    with _watch_process(kube_proxy_node, tmp_path) as watch:
        assert watch.next()["state"] == "equal"
        kube_proxy_node.run(["sh", "-e"], stdin=f"iptables-nft -t nat -D {rule.removeprefix('-A ')}")
        different = watch.next()
        assert different["state"] == "different"
        assert {item["service"] for item in different["differences"]} == {"shop/frontend:http"}
        rule_text = rule.removeprefix("-A KUBE-SERVICES ")
        kube_proxy_node.run(["sh", "-e"], stdin=f"iptables-nft -t nat -I KUBE-SERVICES {number} {rule_text}")
        assert watch.next()["state"] == "equal"
        assert watch.stop(signal.SIGTERM) == (0, 0)
    assert machine_state(kube_proxy_node) == before


def test_changed_manifest_is_compared(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    folder = Path(copytree(EXAMPLES, tmp_path / "manifests"))
    with _watch_process(kube_proxy_node, tmp_path, "-f", str(folder), *NODE) as watch:
        assert watch.next()["state"] == "equal"
        shop = next(path for path in folder.iterdir() if "30080" in path.read_text())
        text = shop.read_text()
        shop.write_text(text.replace("10.244.2.12]", "10.244.2.13]"))
        different = watch.next()
        assert "endpoints" in {item["cause"] for item in different["differences"]}
        shop.write_text(text)
        assert watch.next()["state"] == "equal"
        assert watch.stop(signal.SIGINT) == (0, 0)


def test_removed_node_address_is_compared(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    """kube-proxy serves NodePorts on the machine's addresses, knft on those of the Node object."""
    with _watch_process(kube_proxy_node, tmp_path, "-f", str(EXAMPLES), *NODE) as watch:
        assert watch.next()["state"] == "equal"
        kube_proxy_node.run(["ip", "address", "delete", "192.0.2.11/32", "dev", "lo"])
        assert {item["family"] for item in watch.next()["differences"]} == {"IPv4"}
        assert watch.stop(signal.SIGTERM)[0] == 0


def test_changes_without_notification_are_polled(node: Namespace, tmp_path: Path) -> None:
    """The rules are iptables-legacy's. A comparison that fails is a result with an error, and is retried."""
    (tmp_path / "programs").mkdir()
    programs = legacy_programs(tmp_path / "programs")
    with _watch_process(node, tmp_path, "-f", str(EXAMPLES), *NODE) as watch:
        assert "no kube-proxy rules and no knft table" in watch.next()["error"]
        load_iptables(node, programs)
        while (found := watch.next())["state"] != "equal":
            pass
        assert "iptables-legacy" in found["left"]
        node.run(["iptables-legacy", "-t", "nat", "-F", "KUBE-NODEPORTS"])
        assert {item["service"] for item in watch.next()["differences"]} == {"shop/frontend:http"}
        assert watch.stop(signal.SIGTERM)[0] == 0


def test_text_output_has_a_line_with_the_time(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "lines"
    with log.open("w") as file:
        process = kube_proxy_node.popen([*KNFT, "diff", "--live", "--watch", "-f", str(EXAMPLES), *NODE], stdout=file)
    wait_until(lambda: log.read_text().endswith("\n"), "no result within the timeout")
    process.terminate()
    assert process.wait(TIMEOUT) == 0
    (line,) = log.read_text().splitlines()
    assert line[:4].isdigit()
    assert " equal: packets have the same outcome in kube-proxy on this machine" in line
