"""Someone else's hand in knft's tables is noticed, mended and reported; and the library may die meanwhile."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packets.node import KNFT, NODE_FLAG
from tests.support.lab.logged_process import LoggedProcess
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
HANG = 30.0
MENDED = 5.0
"""Seconds: five times what it may take."""

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


class Running(LoggedProcess):
    """``knft run`` in a namespace of its own."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace = namespace
        (folder / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
        arguments = ["run", "--manifests", str(folder), *NODE_FLAG, "--min-sync-period", "0", "--sync-period", "1s"]
        super().__init__(namespace, [*KNFT, *arguments], folder / "log")
        self.until(lambda: self.said().count("full sync") == 2, HANG)
        self.tables = self.words()

    def nft(self, command: str) -> str:
        return self.namespace.run(["nft", "-f", "-"], stdin=command).stdout

    def words(self) -> list[str]:
        """Return what both tables are, without the order of chains and elements."""
        return sorted(self.namespace.run(["nft", "list", "ruleset"]).stdout.replace(",", " ").split())

    def worker(self) -> int:
        """Return the process that libnftables works in."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self._workers()
            return bool(found)

        self.until(look, HANG)
        return found[0]

    def _workers(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        return [pid for pid in children if b"knft.kernel.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    namespace = Namespace.create("foreign")
    knft = Running(namespace, tmp_path)
    yield knft
    knft.process.kill()
    knft.process.communicate()
    namespace.close()


def _sticky_chain(running: Running, family: str) -> str:
    listed = running.namespace.run(["nft", "list", "chains", family]).stdout.split()
    return next(word for word in listed if word.startswith("sticky-") and word.endswith("-cluster"))


DAMAGES = {
    "the ruleset is flushed": "flush ruleset",
    "a table is deleted": "delete table {family} knft",
    "an element is deleted": "delete element {family} knft service-ips {{ {address} . tcp . 80 }}",
    "an element is added": "add element {family} knft cluster-ips {{ {other} }}",
    "an element has another value": (
        "delete element {family} knft service-ips {{ {address} . tcp . 80 }}\n"
        "add element {family} knft service-ips {{ {address} . tcp . 80 : drop }}"
    ),
    "a chain is flushed": "flush chain {family} knft services",
    "a rule is replaced by as many": (
        "flush chain {family} knft reject-chain\nadd rule {family} knft reject-chain drop"
    ),
    "a pool's rules are others": "flush chain {family} knft pool-tcp-3\nadd rule {family} knft pool-tcp-3 drop\n"
    "add rule {family} knft pool-tcp-3 drop",
    "a sticky chain's rules are others": "flush chain {family} knft {sticky}\n"
    + "\n".join(["add rule {family} knft {sticky} drop"] * 5),
    "the table is switched off": "add table {family} knft {{ flags dormant; }}",
    "a policy is another": "add chain {family} knft filter-forward {{ policy drop; }}",
    "a hook is another": "delete chain {family} knft nat-output\n"
    "add chain {family} knft nat-output {{ type nat hook output priority 7; }}",
    "a map is another": "flush chain {family} knft services\ndelete map {family} knft service-nodeports\n"
    "add map {family} knft service-nodeports {{ type inet_service : verdict; }}",
}


@pytest.mark.parametrize("family", ["ip", "ip6"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_others_change_is_mended_and_reported(running: Running, damage: str, family: str) -> None:
    address, other = ("10.96.0.2", "10.96.0.99") if family == "ip" else ("fd00:10:96::2", "fd00:10:96::99")
    sticky = _sticky_chain(running, family)
    running.nft(damage.format(family=family, address=address, other=other, sticky=sticky))
    words = "IPv4: nft (pid" if family == "ip" else "IPv6: nft (pid"
    running.until(lambda: words in running.said(), MENDED)
    running.until(lambda: running.tables == running.words(), MENDED)


def test_what_others_do_elsewhere_is_nothing_to_knft(running: Running) -> None:
    for number in range(20):
        running.nft(f"add table ip t{number}\nadd set ip t{number} knft {{ type inet_service; elements = {{ 80 }} }}")
    running.nft("add table inet knft")
    running.nft("delete element ip knft cluster-ips { 10.96.0.2 }")
    running.until(lambda: "IPv4: nft (pid" in running.said(), MENDED)
    assert running.said().count("(pid") == 1
    assert running.said().count("full sync") <= 3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_the_librarys_process_may_die(running: Running, how: signal.Signals) -> None:
    """And what is done by hand just then is mended all the same."""
    for _ in range(5):
        os.kill(running.worker(), how)
        running.nft("delete element ip knft cluster-ips { 10.96.0.2 }")
        running.until(lambda: running.tables == running.words(), HANG)


def test_the_librarys_process_may_die_in_the_middle_of_a_commit(running: Running, tmp_path: Path) -> None:
    """A manifest of 3 000 Services keeps it busy meanwhile; in the end all of them are there."""
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"many-{number}"},
            "spec": {"clusterIP": f"10.97.{number // 250}.{number % 250 + 1}", "ports": [{"port": 80}]},
        }
        for number in range(3000)
    ]
    (tmp_path / "many.json").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": services}))
    for _ in range(5):
        library = running.worker()
        before = _ticks(library)
        running.until(lambda before=before, library=library: _ticks(library) > before, HANG)  # type: ignore[misc]
        with suppress(ProcessLookupError):
            os.kill(library, signal.SIGKILL)
    running.until(lambda: len([word for word in running.words() if word.startswith("10.97.")]) >= 3000, HANG)


def _ticks(pid: int) -> int:
    """Return the ticks of processor time that a process has used; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 1 << 62
    return int(fields[11]) + int(fields[12])
