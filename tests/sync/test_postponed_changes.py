"""Postponed wide Service ports with session affinity: nothing keeps them waiting, nor do foreign changes wait."""

from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.nft.objects import Chain
from knft.nft.transaction import Transaction
from knft.sync.daemon import Daemon
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.support.kernel_harness import CONFIG, service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.memory_table import MemoryTable

NAMES = ("first", "second", "third")


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> MemoryHarness:
    """Return a harness that is synced, and then has wide Services with session affinity and an endpoint each."""
    monkeypatch.setattr("knft.sync.proxier.MAX_RULES", 1)
    monkeypatch.setattr("knft.render.wide.COPIES_FACTOR", 0)
    harness = MemoryHarness()
    harness.sync()
    for number, name in enumerate(NAMES, 10):
        harness.apply(service(name, number, sessionAffinity="ClientIP"), *slices(name, [number]))
    return harness


def _names(report: SyncReport) -> set[str]:
    return {port.name for port in report.changed_service_ports}


def test_service_ports_that_change_all_the_time_do_not_keep_others_waiting(harness: MemoryHarness) -> None:
    """Without a turn of its own, the third Service would be postponed again in each sync."""
    reports = [harness.sync()]
    for count in range(2, 5):
        harness.apply(*slices("first", range(count)), *slices("second", range(count)))
        reports.append(harness.sync())

    assert [_names(report) for report in reports] == [
        {"first"},
        {"first", "second"},
        {"first", "third"},
        {"first", "second"},
    ]
    assert [report.is_complete for report in reports] == [False, False, False, True]
    assert harness.differences() == []


def test_service_ports_that_write_more_rules_than_estimated_end_the_transaction(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has one endpoint, but new chains of several rules: after the first ones, the others are postponed."""
    while not harness.sync().is_complete:
        pass
    changed = []
    for max_rules in (3, 1 << 10):
        monkeypatch.setattr("knft.sync.proxier.MAX_RULES", max_rules)
        for number, name in enumerate(("d", "e", "f", "web"), 40):
            affinity: dict[str, Any] = {} if name == "web" else {"sessionAffinity": "ClientIP"}
            harness.apply(service(name, number, **affinity), *slices(name, [number]))
        reports = [harness.sync()]
        while not reports[-1].is_complete:
            reports.append(harness.sync())
        changed.append([_names(report) for report in reports])
        assert harness.differences() == []
        for name in ("d", "e", "f", "web"):
            harness.delete("Service", name)
        harness.sync()
    assert changed == [[{"web", "d"}, {"e"}, {"f"}], [{"web", "d", "e", "f"}]]


def test_other_service_ports_are_not_postponed(harness: MemoryHarness) -> None:
    """Only those with session affinity have many rules of their own."""
    while not harness.sync().is_complete:
        pass
    for number in range(1, 6):
        harness.apply(service(f"web-{number}", number), *slices(f"web-{number}", range(20, 30)))
    report = harness.sync()
    assert (report.is_full, report.is_complete, len(_names(report))) == (False, True, 5)
    assert harness.differences() == []


def test_family_whose_sync_fails_does_not_keep_the_other_waiting(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The family that failed is retried later."""
    attempts: list[Family] = []

    def fail() -> NoReturn:
        attempts.append(Family.IPV6)
        msg = "refused"
        raise KernelError(msg)

    state = ServiceState(Family.IPV6, CONFIG.node_name, datetime(2026, 1, 1, tzinfo=UTC))
    other = Proxier(Family.IPV6, CONFIG, state, MemoryTable(Family.IPV6), lambda: 0.0)
    monkeypatch.setattr(other, "sync", fail)

    assert not Daemon((other, harness.proxier), harness.dispatcher).sync()

    assert attempts == [Family.IPV6]
    assert harness.proxier.is_complete
    assert harness.differences() == []


def test_foreign_change_does_not_wait_for_postponed_changes(harness: MemoryHarness) -> None:
    """While Service ports change all the time, there may always be some."""
    daemon = Daemon((harness.proxier,), harness.dispatcher)

    def damage(_: Transaction) -> None:
        harness.table.stop_failing()
        harness.table.chains["services"] = Chain("services")
        daemon.foreign_changes.record(ForeignChange(Family.IPV4, frozenset({"services"}), process="nft (pid 7)"))

    harness.table.on_commit = damage

    assert daemon.sync()

    assert harness.differences() == []
