"""knft repairs and reports changes that other programs make to its tables, also when libnftables' process dies."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import LoggedProcess
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel

OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1", "fd00:10:96::1"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [{"port": 80}],
            "sessionAffinity": "ClientIP",
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "plain"},
        "spec": {
            "clusterIP": "10.96.0.2",
            "clusterIPs": ["10.96.0.2", "fd00:10:96::2"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [{"port": 80}],
        },
    },
    *(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-{family.lower()}", "labels": {"kubernetes.io/service-name": name}},
            "addressType": family,
            "ports": [{"name": "", "port": 8080}],
            "endpoints": [{"addresses": [f"{start}{number}"]} for number in (1, 2, 3)],
        }
        for name in ("web", "plain")
        for family, start in (("IPv4", "10.244.2."), ("IPv6", "fd00:10:244:2::"))
    ),
]


class WatchedKnft(LoggedProcess):
    """``knft run`` in a namespace of its own."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace = namespace
        (folder / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
        arguments = ["run", "--manifests", str(folder), *NODE_FLAG, "--min-sync-period", "0", "--sync-period", "1s"]
        super().__init__(namespace, [*KNFT, *arguments], folder / "log")
        self.wait_until(lambda: self.log_text().count("full sync") == 2)
        self.ruleset_after_start = self.ruleset_words()

    def nft(self, command: str) -> str:
        return self.namespace.run(["nft", "-f", "-"], stdin=command).stdout

    def ruleset_words(self) -> list[str]:
        """Return the words of both tables without endpoint IDs, sorted: the order of chains and elements may differ."""
        words = self.namespace.run(["nft", "list", "ruleset"]).stdout.replace(",", " ").split()
        return sorted(word for word in words if re.fullmatch("[0-9a-f]+:[0-9a-f]+", word) is None)

    def worker_process(self) -> int:
        """Return the process of libnftables, waiting until there is one."""
        found: list[int] = []

        def find() -> bool:
            found[:] = worker_processes(self.process.pid)
            return bool(found)

        self.wait_until(find)
        return found[0]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[WatchedKnft]:
    namespace = Namespace.create("foreign")
    knft = WatchedKnft(namespace, tmp_path)
    yield knft
    knft.process.kill()
    knft.process.communicate()
    namespace.close()


FOREIGN_CHANGES = {
    "the ruleset is flushed": "flush ruleset",
    "a table is deleted": "delete table {family} knft",
    "an element is deleted": "delete element {family} knft service-ips {{ {address} . tcp . 80 }}",
    "an element is added": "add element {family} knft cluster-ips {{ {other} }}",
    "an element has another value": (
        "delete element {family} knft service-ips {{ {address} . tcp . 80 }}\n"
        "add element {family} knft service-ips {{ {address} . tcp . 80 : drop }}"
    ),
    "a chain is flushed": "flush chain {family} knft services",
    "a rule is replaced": ("flush chain {family} knft reject-chain\nadd rule {family} knft reject-chain drop"),
    "a pool has other rules": "flush chain {family} knft pool-tcp-3\nadd rule {family} knft pool-tcp-3 drop\n"
    "add rule {family} knft pool-tcp-3 drop",
    "a chain for known clients has other rules": "flush chain {family} knft affinity-10800-known-tcp-0\n"
    + "\n".join(["add rule {family} knft affinity-10800-known-tcp-0 drop"] * 4),
    "the table is dormant": "add table {family} knft {{ flags dormant; }}",
    "a chain has another policy": "add chain {family} knft filter-forward {{ policy drop; }}",
    "a chain has another priority": "delete chain {family} knft nat-output\n"
    "add chain {family} knft nat-output {{ type nat hook output priority 7; }}",
    "a map has another type": "flush chain {family} knft services\ndelete map {family} knft service-nodeports\n"
    "add map {family} knft service-nodeports {{ type inet_service : verdict; }}",
}


@pytest.mark.parametrize("family", ["ip", "ip6"])
@pytest.mark.parametrize("change", FOREIGN_CHANGES.values(), ids=FOREIGN_CHANGES.keys())
def test_foreign_change_is_repaired_and_reported(running: WatchedKnft, change: str, family: str) -> None:
    address, other = ("10.96.0.2", "10.96.0.99") if family == "ip" else ("fd00:10:96::2", "fd00:10:96::99")
    running.nft(change.format(family=family, address=address, other=other))
    words = "IPv4: nft (pid" if family == "ip" else "IPv6: nft (pid"
    running.wait_until(lambda: words in running.log_text())
    running.wait_until(lambda: running.ruleset_after_start == running.ruleset_words())


def test_changes_to_other_tables_are_ignored(running: WatchedKnft) -> None:
    for number in range(20):
        running.nft(f"add table ip t{number}\nadd set ip t{number} knft {{ type inet_service; elements = {{ 80 }} }}")
    running.nft("add table inet knft")
    running.nft("delete element ip knft cluster-ips { 10.96.0.2 }")
    running.wait_until(lambda: "IPv4: nft (pid" in running.log_text())
    assert running.log_text().count("(pid") == 1
    assert running.log_text().count("full sync") <= 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_libnftables_process_is_replaced_when_it_dies(running: WatchedKnft, number: signal.Signals) -> None:
    """A foreign change at the same time is repaired."""
    for _ in range(5):
        os.kill(running.worker_process(), number)
        running.nft("delete element ip knft cluster-ips { 10.96.0.2 }")
        running.wait_until(lambda: running.ruleset_after_start == running.ruleset_words())


def test_commit_is_repeated_when_the_libnftables_process_dies(running: WatchedKnft, tmp_path: Path) -> None:
    """The process is killed while it commits 3 000 Services; all of them are in the table in the end."""
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"many-{number}"},
            "spec": {"clusterIP": f"10.97.{number // 250}.{number % 250 + 1}", "ports": [{"port": 80}]},
        }
        for number in range(3000)
    ]

    def is_committed() -> bool:
        return len([word for word in running.ruleset_words() if word.startswith("10.97.")]) >= len(services)

    library = running.worker_process()
    before = _ticks(library)
    (tmp_path / "many.json").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": services}))
    for _ in range(5):
        # A process may commit all Services before its ticks are read; then it is idle.
        running.wait_until(lambda before=before, library=library: _ticks(library) > before or is_committed())  # type: ignore[misc]
        with suppress(ProcessLookupError):
            os.kill(library, signal.SIGKILL)
        library = running.worker_process()
        before = _ticks(library)
    running.wait_until(is_committed)


def _ticks(pid: int) -> int:
    """Return the ticks of CPU time that a process has used; a huge number if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 1 << 62
    return int(fields[11]) + int(fields[12])
