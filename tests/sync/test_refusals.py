"""Refused requests: quarantine, orphans and deferred removals, on a table in memory."""

import pytest

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.nft.transaction import Transaction
from knft.render.names import HAIRPIN
from knft.sync.invalidation import Invalidation
from tests.support.kernel_harness import service, slices
from tests.support.kube_objects import port_name
from tests.support.memory_harness import MemoryHarness, synced_harness
from tests.support.memory_table import MemoryTable

WEB = port_name()


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a NodePort Service with a local endpoint, and a sticky Service."""
    return synced_harness()


def _refuse(address: str, table: MemoryTable) -> None:
    """Let the table refuse all transactions about a frontend's address."""

    def refuse(transaction: Transaction) -> None:
        keys = [key for removed in transaction.removed.values() for key in removed]
        if any(address in key for key in (*keys, *(key for added in transaction.added.values() for key in added))):
            msg = f"{address} refused"
            raise KernelError(msg)

    table.on_commit = refuse


def _frontends(harness: MemoryHarness) -> set[object]:
    return {key[0] for key in harness.table.elements["service-ips"]}


@pytest.mark.parametrize("restarted", [False, True])
def test_refused_service_port_keeps_its_contents_and_the_others_change(
    harness: MemoryHarness, *, restarted: bool
) -> None:
    before = {name: dict(found) for name, found in harness.table.elements.items()}
    if restarted:
        harness = harness.restarted()
    harness.apply(service("new", 40), *slices("new", [41]), *slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    report = harness.sync()
    assert report.quarantined == {WEB: "10.96.0.10 refused"}
    assert report.orphan_error == ""
    after = harness.table.elements
    assert _frontends(harness) == {"10.96.0.10", "10.96.0.30", "10.96.0.40"}
    kept = [(name, key) for name, found in before.items() for key in found if "10.96.0.10" in key or 30080 in key]
    assert len(kept) > 6
    assert [after[name][key] for name, key in kept] == [before[name][key] for name, key in kept]
    local = ("10.244.2.12", "10.244.2.12", "tcp", 8080)
    assert local in after[HAIRPIN]
    assert harness.proxier.audit(harness.table) == 0


def test_quarantined_service_port_is_retried_with_growing_delays(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    for delay in (30.0, 60.0, 120.0):
        assert harness.sync().next_sync_within == delay
        harness.now += delay - 1
        assert not harness.sync().is_full
        harness.now += 1
    harness.table.stop_failing()
    report = harness.sync()
    assert (report.quarantined, report.next_sync_within) == ({}, None)
    assert harness.differences() == []


def test_changed_service_port_is_retried_after_the_first_delay(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    for delay in (30.0, 60.0):
        assert harness.sync().next_sync_within == delay
        harness.now += delay
    harness.sync()
    harness.table.stop_failing()
    harness.now += 29.0
    harness.apply(*slices("web", [11, 98]))
    assert harness.sync().next_sync_within == 1.0
    harness.now += 1.0
    assert harness.sync().quarantined == {}
    assert harness.differences() == []


def test_quarantined_service_port_waits_also_if_the_table_is_read_again(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    for _ in range(2):
        harness.proxier.invalidate(Invalidation())
        assert harness.sync().next_sync_within == 30.0


def test_quarantined_service_port_is_retried_at_once_in_a_new_table(harness: MemoryHarness) -> None:
    """Another program deleted the table, and with it the reason for the refusal."""
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    assert harness.sync().quarantined
    harness.table.stop_failing()
    harness.table.exists, harness.table.elements, harness.table.chains = False, {}, {}
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().quarantined == {}
    assert harness.differences() == []


def test_deleted_service_port_leaves_quarantine(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    harness.sync()
    harness.table.stop_failing()
    harness.delete("Service", "web")
    report = harness.sync()
    assert report.is_full
    assert report.quarantined == {}
    assert harness.differences() == []


def test_refused_removal_of_orphans_is_retried(harness: MemoryHarness) -> None:
    """The elements of a deleted Service stay in the table until the kernel accepts their removal."""
    _refuse("10.96.0.10", harness.table)
    harness.delete("Service", "web")
    for delay in (30.0, 60.0):
        report = harness.sync()
        assert report.quarantined == {}
        assert (report.orphan_error, report.next_sync_within) == ("10.96.0.10 refused", delay)
        assert report.refused_removals == 1
        assert "10.96.0.10" in _frontends(harness)
        assert harness.proxier.audit(harness.table)
        harness.now += delay
    harness.table.stop_failing()
    report = harness.sync()
    assert (report.orphan_error, report.next_sync_within, report.refused_removals) == ("", None, 0)
    assert harness.differences() == []


@pytest.mark.parametrize("error", [LibraryDiedError("died"), UnavailableError("timeout")])
def test_removal_of_orphans_may_have_happened_if_the_library_died(
    harness: MemoryHarness, error: UnavailableError
) -> None:
    """Another error than a crash does not depend on the request, so the sync fails."""
    _refuse("10.96.0.10", harness.table)
    harness.delete("Service", "web")
    assert harness.sync().orphan_error
    harness.now += 30.0
    commits = []

    def fail(transaction: Transaction) -> None:
        commits.append(transaction)
        if "service-ips" in transaction.removed:
            raise error

    harness.table.on_commit = fail
    checks = harness.table.checks
    if isinstance(error, LibraryDiedError):
        report = harness.sync()
        assert (report.orphan_error, report.refused_removals) == ("died", 1)
        assert harness.table.checks > checks
        assert harness.sync().is_full
    else:
        with pytest.raises(UnavailableError):
            harness.sync()
    harness.table.stop_failing()
    assert harness.sync().is_full
    harness.now += 3600.0
    assert harness.sync().orphan_error == ""
    assert harness.differences() == []


def test_elements_whose_deferred_removal_is_refused_become_orphans(harness: MemoryHarness) -> None:
    """A packet in flight may still look up the endpoints of the former layout, so they are removed last."""
    addresses = [f"198.51.100.{number}" for number in range(1, 40)]
    harness.apply(*slices("web", range(101, 131), local=[107]))
    harness.sync()
    prefixes = {("10.96.0.10", 80), *((address, 80) for address in addresses)}

    def refuse(transaction: Transaction) -> None:
        if any(key[:-1] in prefixes for key in transaction.removed.get("endpoints-tcp", ())):
            msg = "busy"
            raise KernelError(msg)

    harness.table.on_commit = refuse
    harness.apply(service("web", node_port=30080, externalIPs=addresses))
    report = harness.sync()
    assert (report.quarantined, report.orphan_error) == ({}, "busy")
    assert ("10.96.0.10", 80, 0) in harness.table.elements["endpoints-tcp"]
    assert harness.proxier.audit(harness.table)
    harness.table.stop_failing()
    assert report.next_sync_within is not None
    harness.now += report.next_sync_within
    assert harness.sync().orphan_error == ""
    assert harness.differences() == []
