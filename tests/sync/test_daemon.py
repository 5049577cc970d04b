"""The daemon beside its syncs: long audits, and foreign changes reported in one line."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.nft.codec.listing import TableListing
from knft.runner.bounded import Intervals
from knft.sync.daemon import Daemon
from knft.sync.foreign_changes import UNDELAYED_REPETITIONS
from tests.support.kernel_harness import CheckedTable, KernelHarness, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
TIMEOUT = 30.0


class _SlowPort(CheckedTable):
    """A port whose read takes until the test sets an event."""

    def __init__(self, harness: KernelHarness, family: Family) -> None:
        super().__init__(harness.tables[family])
        self.reading, self.go_on = threading.Event(), threading.Event()

    def read(self) -> TableListing | None:
        self.reading.set()
        assert self.go_on.wait(TIMEOUT)
        return super().read()


def _daemon_with_ports(harness: KernelHarness, ports: dict[Family, CheckedTable]) -> Daemon:
    @contextmanager
    def auditor(family: Family) -> Iterator[CheckedTable]:
        yield ports[family]

    return Daemon(tuple(harness.proxiers.values()), harness.dispatcher, auditor)


@pytest.fixture
def filled(namespace: Namespace) -> KernelHarness:
    harness = KernelHarness(namespace)
    harness.apply(service("web"), *slices("web", [11, 12]))
    harness.sync()
    return harness


def test_audit_does_not_block_syncs(filled: KernelHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Syncs commit while it reads; it does not report them as damage, but finds real damage."""
    slow = {family: _SlowPort(filled, family) for family in Family}
    slow[Family.IPV6].go_on.set()
    daemon = _daemon_with_ports(filled, dict(slow))
    filled.namespace.run(["nft", "add", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.99 }"])
    with filled.namespace.entered(), caplog.at_level(logging.WARNING, "knft"):
        audit = threading.Thread(target=daemon.audit)
        audit.start()
        assert slow[Family.IPV4].reading.wait(TIMEOUT)
        for numbers in ([11, 12, 13], [12, 13]):
            filled.apply(*slices("web", numbers))
            assert not filled.sync()[Family.IPV4].is_full
        slow[Family.IPV4].go_on.set()
        audit.join(TIMEOUT)
    assert caplog.messages == ["IPv4: audit: 1 elements or chains differ from what was committed; repairing them"]
    assert filled.sync()[Family.IPV4].is_full
    assert ("cluster-ips", ("10.96.0.99",)) not in filled.listing().contents.members


def test_audits_run_periodically(filled: KernelHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hour; more often in this test. A failing audit does not end them."""
    for name in ("AUDIT_SECONDS", "AUDIT_RETRY_SECONDS", "PAUSE_SECONDS"):
        monkeypatch.setattr(f"knft.sync.audit_schedule.{name}", 0.01)
    ports = {family: CheckedTable(filled.tables[family]) for family in Family}
    stop, often = threading.Event(), threading.Event()

    @contextmanager
    def auditor(family: Family) -> Iterator[CheckedTable]:
        if ports[family].reads > 3:
            often.set()
        if ports[family].reads == 1 and not often.is_set():
            ports[family].reads += 1
            msg = "bug for the test"
            raise ZeroDivisionError(msg)
        yield ports[family]

    intervals = Intervals(0, 30, 3600)
    daemon = Daemon(tuple(filled.proxiers.values()), filled.dispatcher, auditor, intervals=intervals)

    def run() -> None:
        with filled.namespace.entered():
            daemon.run(stop)

    running = threading.Thread(target=run)
    running.start()
    assert often.wait(TIMEOUT)
    stop.set()
    running.join(TIMEOUT)
    assert not running.is_alive()
    for thread in threading.enumerate():
        if thread.name == "audit":  # The last audit may still be running in this test's namespace.
            thread.join(TIMEOUT)


def test_audit_during_a_sync_compares_nothing(filled: KernelHarness) -> None:
    daemon = _daemon_with_ports(filled, {family: CheckedTable(filled.tables[family]) for family in Family})
    assert daemon.audit()
    compared: list[bool] = []
    filled.checked_tables[Family.IPV4].on_commit = lambda _: compared.append(daemon.audit())
    filled.apply(*slices("web", [13]))
    filled.sync()
    assert set(compared) == {False}
    assert daemon.audit()


def test_unreadable_table_is_logged_by_audit(filled: KernelHarness, caplog: pytest.LogCaptureFixture) -> None:
    ports = {family: CheckedTable(filled.tables[family]) for family in Family}
    ports[Family.IPV4].refused_reads = 1
    with caplog.at_level(logging.WARNING, "knft"):
        assert not _daemon_with_ports(filled, ports).audit()
    assert caplog.messages == ["IPv4: audit failed: read refused for the test"]
    assert not filled.sync()[Family.IPV4].is_full


class _FakeMonitor:
    """A ForeignChangeMonitor with given results."""

    def __init__(self, stop: threading.Event, *changes: ForeignChange | Exception) -> None:
        self._changes = list(changes)
        self._stop = stop
        self.reopened = 0

    def reopen(self) -> None:
        self.reopened += 1
        if self.reopened == 1:
            msg = "refused for the test"
            raise KernelError(msg)

    def receive(self, _seconds: float) -> tuple[ForeignChange, ...]:
        change = self._changes.pop(0)
        if not self._changes:
            self._stop.set()
        if isinstance(change, Exception):
            raise change
        return (change,)


def test_foreign_changes_are_counted_and_logged_in_one_line(
    filled: KernelHarness, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    some = ForeignChange(Family.IPV4, frozenset({"services"}), frozenset({"cluster-ips"}), process="nft (pid 7)")
    more = ForeignChange(Family.IPV4, frozenset(f"chain-{number}" for number in range(9)), process="other (pid 8)")
    filled.daemon.foreign_changes.run(_FakeMonitor(stop, some, more), stop)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "knft"):
        assert filled.daemon.sync()
    assert caplog.messages == [
        (
            "IPv4: nft (pid 7), other (pid 8) changed the table: chain-0, chain-1, chain-2, chain-3, chain-4 and more; "
            "reading the table back"
        )
    ]
    assert filled.daemon.foreign_changes.counts == {Family.IPV4: 2}
    assert filled.daemon.sync()
    assert len(caplog.messages) == 1


def test_repeated_foreign_changes_delay_the_check(filled: KernelHarness, caplog: pytest.LogCaptureFixture) -> None:
    """The other program changes the table after each check."""
    change = ForeignChange(Family.IPV4, process="nft (pid 7)")
    for _ in range(UNDELAYED_REPETITIONS + 2):
        stop = threading.Event()
        filled.daemon.foreign_changes.run(_FakeMonitor(stop, change), stop)  # type: ignore[arg-type]
        filled.daemon.sync()
    checks = "IPv4: nft (pid 7) changed the table; reading the table back"
    warning = (
        "IPv4: the table is changed again and again, now by nft (pid 7): stop this process; "
        "knft reads the table back in 1 s"
    )
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [*[checks] * (UNDELAYED_REPETITIONS + 1), warning]


@pytest.mark.parametrize("error", [KernelError("no notifications"), ZeroDivisionError("a mistake")])
def test_failed_notifications_are_reopened(
    filled: KernelHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A full sync finds changes made in the meantime."""
    monkeypatch.setattr("knft.sync.foreign_change_watch.REOPEN_SECONDS", 0.0)
    stop = threading.Event()
    monitor = _FakeMonitor(stop, error, ForeignChange(Family.IPV6, frozenset({"services"}), process="nft (pid 7)"))
    edit = "\n".join(["flush chain ip knft services", *["add rule ip knft services drop"] * 3])
    before = filled.namespace.run(["nft", "list", "chain", "ip", "knft", "services"]).stdout
    filled.namespace.run(["nft", "-f", "-"], stdin=edit)
    filled.daemon.foreign_changes.run(monitor, stop)  # type: ignore[arg-type]
    lost = "no notifications; until notifications work again, only the audit finds foreign changes"
    assert caplog.messages[0] in (lost, "watching foreign changes failed unexpectedly; please report this")
    assert monitor.reopened == 2
    assert filled.daemon.foreign_changes.counts == {Family.IPV6: 1}
    assert filled.daemon.sync()
    assert filled.namespace.run(["nft", "list", "chain", "ip", "knft", "services"]).stdout == before
