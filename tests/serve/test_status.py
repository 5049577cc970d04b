"""The answer to ``knft status``: the state of a family, which is "in force" only if all its rules are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from knft.control.messages import FamilyStatus, LoopbackStatus, NamedProblems, SourceStatus
from knft.errors import UnavailableError
from knft.families import Family
from knft.forwarder.forwarder import Forwarder
from knft.forwarder.messages import ListenFailure, Report
from knft.kernel.notifications import ForeignChange
from knft.nft.transaction import Transaction
from knft.serve.last_syncs import LastSyncs
from knft.serve.proxy_health import ProxyHealth
from knft.serve.status import StatusSources, read_status
from knft.serve.timestamp import now
from knft.sync.daemon import Daemon
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.memory_table import MemoryTable

FLUSHED = ForeignChange(Family.IPV4, frozenset({"services"}), process="nft (pid 7)")


class StatusNode:
    """A daemon with one family and its status."""

    def __init__(self) -> None:
        self.harness = MemoryHarness()
        health, last_syncs = ProxyHealth(30.0, now), LastSyncs(now)
        observers = (health, last_syncs)
        self.daemon = Daemon((self.harness.proxier,), self.harness.dispatcher, self._audit_table, observers)
        source = SourceStatus("manifests", "/manifests")
        self.forwarder = Forwarder()
        self.sources = StatusSources("node-1", now(), now, self.daemon, health, last_syncs, lambda: source)
        self.harness.apply(service("web"), *slices("web", (11, 12)))

    @contextmanager
    def _audit_table(self, _: Family) -> Iterator[MemoryTable]:
        yield self.harness.table

    def fail_read(self) -> None:
        msg = "cannot be read"
        raise UnavailableError(msg)

    def family(self) -> FamilyStatus:
        return read_status(self.sources).families["IPv4"]

    def queue_change(self) -> None:
        self.harness.apply(*slices("web", (12, 13)))
        self.daemon._queue_sync([Family.IPV4])

    def fail_sync(self) -> None:
        def refuse(_: Transaction) -> None:
            msg = "refused for the test"
            raise UnavailableError(msg)

        self.queue_change()
        self.harness.table.on_commit = refuse
        assert not self.daemon.sync()


@pytest.fixture
def node() -> StatusNode:
    return StatusNode()


def test_family_waits_until_its_first_sync(node: StatusNode) -> None:
    assert node.family().state == "waiting"
    assert node.daemon.sync()
    assert node.family().state == "in force"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda node: node.queue_change(), "pending"),
        (lambda node: node.fail_sync(), "failing"),
        (lambda node: node.daemon.foreign_changes.record(FLUSHED), "changed"),
    ],
    ids=["pending", "failing", "changed"],
)
def test_state_of_a_family_that_was_synced(node: StatusNode, change: Callable[[StatusNode], None], state: str) -> None:
    assert node.daemon.sync()
    change(node)
    assert node.family().state == state
    assert node.family().sync_error == ("refused for the test" if state == "failing" else "")
    node.harness.table.stop_failing()
    assert node.daemon.sync()
    assert (node.family().state, node.family().sync_error) == ("in force", "")


def test_each_losing_claim_is_listed(node: StatusNode) -> None:
    """A Service port may lose several."""
    addresses = ("203.0.113.5", "203.0.113.6")
    node.harness.apply(*(service(name, number, externalIPs=addresses) for name, number in (("a", 3), ("b", 4))))
    assert node.daemon.sync()
    contested = node.family().contested
    assert contested.count == 2
    assert sorted(contested.texts) == [
        f"Service port default/b:http does not get frontend {address} 80/TCP, which Service port default/a:http owns"
        for address in addresses
    ]


def test_nodeports_on_loopback_are_counted_and_failures_named(node: StatusNode) -> None:
    assert node.daemon.sync()
    assert node.family().loopback is None
    failed = ListenFailure("IPv4", 30080, "default/web:http", "Address already in use")
    other = ListenFailure("IPv6", 30080, "default/web:http", "Address already in use")
    node.forwarder._receive(Report({"IPv4": 7, "IPv6": 5}, failed=(failed, other)))
    node.sources = replace(node.sources, forwarders={Family.IPV4: node.forwarder})
    reasons = {"30080 of default/web:http": "Address already in use"}
    assert node.family().loopback == LoopbackStatus(7, NamedProblems(1, reasons))


def test_last_audit_is_listed(node: StatusNode) -> None:
    assert node.daemon.sync()
    assert node.family().audit is None
    node.harness.table.elements["cluster-ips"].clear()
    assert node.daemon.audit()
    found = node.family().audit
    assert found is not None
    assert (found.differences, found.error, found.names) == (1, "", ("cluster-ips",))
    node.harness.table.on_read = node.fail_read
    assert not node.daemon.audit()
    found = node.family().audit
    assert found is not None
    assert (found.differences, found.error) == (0, "cannot be read")


def test_audit_during_a_sync_is_listed_as_one_that_compared_nothing(node: StatusNode) -> None:
    assert node.daemon.sync()
    node.queue_change()
    compared: list[bool] = []
    node.harness.table.on_commit = lambda _: compared.append(node.daemon.audit())
    assert node.daemon.sync()
    assert set(compared) == {False}
    found = node.family().audit
    assert found is not None
    assert (found.differences, found.error) == (0, "a sync was running, or the last one had failed")


def test_foreign_change_is_unchecked_until_the_sync_that_checks_it_has_ended(node: StatusNode) -> None:
    """Also while a change of a Service is pending, and while that sync runs."""
    assert node.daemon.sync()
    node.daemon.foreign_changes.record(FLUSHED)
    node.queue_change()
    family = node.family()
    assert (family.state, family.unchecked_change) == ("changed", "nft (pid 7) changed the table: services")
    found: list[FamilyStatus] = []
    node.harness.table.on_commit = lambda _: found.append(node.family())
    assert node.daemon.sync()
    assert {(each.state, each.unchecked_change) for each in found} == {("changed", family.unchecked_change)}
    assert node.family().unchecked_change == ""
