"""The daemon beside its syncs: an audit that takes long, and others' changes that are told in a line."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from knft.errors import KernelError
from knft.kernel.notifications import ForeignChange
from knft.model.names import Family
from knft.nft.codec.listing import Listing
from knft.runner.clock import MonotonicClock
from knft.sync.daemon import AUDIT_AGAIN_SECONDS, AUDIT_SECONDS, Daemon
from tests.kernel.harness import CheckedPort, KernelHarness, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
HANG = 30.0


class _SlowPort(CheckedPort):
    """A port whose reading takes as long as the test wants."""

    def __init__(self, harness: KernelHarness, family: Family) -> None:
        super().__init__(harness.tables[family])
        self.reading, self.go_on = threading.Event(), threading.Event()

    def read(self) -> Listing | None:
        self.reading.set()
        assert self.go_on.wait(HANG)
        return super().read()


def _audited(harness: KernelHarness, ports: dict[Family, CheckedPort]) -> Daemon:
    @contextmanager
    def auditor(family: Family) -> Iterator[CheckedPort]:
        yield ports[family]

    return Daemon(tuple(harness.proxiers.values()), harness.dispatcher, auditor)


@pytest.fixture
def filled(namespace: Namespace) -> KernelHarness:
    harness = KernelHarness(namespace)
    harness.apply(service("web"), *slices("web", [11, 12]))
    harness.sync()
    return harness


def test_an_audit_holds_up_no_sync(filled: KernelHarness, caplog: pytest.LogCaptureFixture) -> None:
    """While it reads, changes are committed; it takes none of them for damage, and finds what is."""
    slow = {family: _SlowPort(filled, family) for family in Family}
    slow[Family.IPV6].go_on.set()
    daemon = _audited(filled, dict(slow))
    filled.namespace.run(["nft", "add", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.99 }"])
    with filled.namespace.entered(), caplog.at_level(logging.WARNING, "knft"):
        audit = threading.Thread(target=daemon.audit)
        audit.start()
        assert slow[Family.IPV4].reading.wait(HANG)
        for numbers in ([11, 12, 13], [12, 13]):
            filled.apply(*slices("web", numbers))
            assert not filled.sync()[Family.IPV4].full
        slow[Family.IPV4].go_on.set()
        audit.join(HANG)
    assert caplog.messages == ["IPv4: 1 elements or chains are not what was committed; mending them"]
    assert filled.sync()[Family.IPV4].full
    assert ("cluster-ips", ("10.96.0.99",)) not in filled.held().contents.members


def test_audits_come_by_themselves(filled: KernelHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an hour; here more often. One that fails is not the last."""
    monkeypatch.setattr("knft.sync.daemon.AUDIT_SECONDS", 0.01)
    monkeypatch.setattr("knft.sync.daemon.AUDIT_AGAIN_SECONDS", 0.01)
    ports = {family: CheckedPort(filled.tables[family]) for family in Family}
    stop, often = threading.Event(), threading.Event()

    @contextmanager
    def auditor(family: Family) -> Iterator[CheckedPort]:
        if ports[family].reads > 3:
            often.set()
        if ports[family].reads == 1 and not often.is_set():
            ports[family].reads += 1
            msg = "a mistake"
            raise ZeroDivisionError(msg)
        yield ports[family]

    daemon = Daemon(tuple(filled.proxiers.values()), filled.dispatcher, auditor)

    def run() -> None:
        with filled.namespace.entered():
            daemon.run(0, 30, MonotonicClock(), stop)

    running = threading.Thread(target=run)
    running.start()
    assert often.wait(HANG)
    stop.set()
    running.join(HANG)
    assert not running.is_alive()
    for thread in threading.enumerate():
        if thread.name == "audit":  # It may be at the last one still, which is about this test's namespace.
            thread.join(HANG)


def test_an_audit_that_meets_a_sync_comes_again_soon(filled: KernelHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only after another hour."""
    daemon = _audited(filled, {family: CheckedPort(filled.tables[family]) for family in Family})
    assert daemon.audit()
    compared: list[bool] = []
    filled.ports[Family.IPV4].meddle = lambda _: compared.append(daemon.audit())
    filled.apply(*slices("web", [13]))
    filled.sync()
    assert set(compared) == {False}
    assert daemon.audit()
    pauses: list[float | None] = []

    class Stop(threading.Event):
        """Ends the loop when it has said how long it waits."""

        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return len(pauses) > 2

    answers = iter((False, True))
    monkeypatch.setattr(daemon, "audit", lambda: next(answers))
    daemon._audit_now_and_then(Stop())
    assert pauses == [AUDIT_SECONDS, AUDIT_AGAIN_SECONDS, AUDIT_SECONDS]


def test_an_audit_that_cannot_read_says_so(filled: KernelHarness, caplog: pytest.LogCaptureFixture) -> None:
    ports = {family: CheckedPort(filled.tables[family]) for family in Family}
    ports[Family.IPV4].refuse_reads = 1
    with caplog.at_level(logging.WARNING, "knft"):
        _audited(filled, ports).audit()
    assert caplog.messages == ["IPv4: the table was not compared with what was committed: not read for the test"]
    assert not filled.sync()[Family.IPV4].full


class _Told:
    """Others' changes, as the test says them."""

    def __init__(self, stop: threading.Event, *changes: ForeignChange | Exception) -> None:
        self._changes = list(changes)
        self._stop = stop
        self.reopened = 0

    def reopen(self) -> None:
        self.reopened += 1
        if self.reopened == 1:
            msg = "not yet"
            raise KernelError(msg)

    def receive(self, _seconds: float) -> tuple[ForeignChange, ...]:
        change = self._changes.pop(0)
        if not self._changes:
            self._stop.set()
        if isinstance(change, Exception):
            raise change
        return (change,)


def test_others_changes_are_counted_and_told_in_one_line(
    filled: KernelHarness, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    some = ForeignChange("ip", frozenset({"services"}), frozenset({"cluster-ips"}), process="nft (pid 7)")
    more = ForeignChange("ip", frozenset(f"chain-{number}" for number in range(9)), process="other (pid 8)")
    filled.daemon.listen(_Told(stop, some, more), stop)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "knft"):
        assert filled.daemon.sync()
    assert caplog.messages == [
        (
            "IPv4: nft (pid 7), other (pid 8) changed the table: chain-0, chain-1, chain-2, chain-3, chain-4 and more; "
            "it is compared and mended"
        )
    ]
    assert filled.daemon.foreign_changes == {Family.IPV4: 2}
    assert filled.daemon.sync()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("error", [KernelError("no notifications"), ZeroDivisionError("a mistake")])
def test_where_notifications_fail_they_are_asked_for_again(
    filled: KernelHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What was missed meanwhile is found by a comparison."""
    monkeypatch.setattr("knft.sync.daemon.DEAF_SECONDS", 0.0)
    stop = threading.Event()
    told = _Told(stop, error, ForeignChange("ip6", frozenset({"services"}), process="nft (pid 7)"))
    edit = "\n".join(["flush chain ip knft services", *["add rule ip knft services drop"] * 3])
    before = filled.namespace.run(["nft", "list", "chain", "ip", "knft", "services"]).stdout
    filled.namespace.run(["nft", "-f", "-"], stdin=edit)
    filled.daemon.listen(told, stop)  # type: ignore[arg-type]
    said = "no notifications; until they are, changes by others are found by the audit alone"
    assert caplog.messages[0] in (said, "listening to others' changes failed unexpectedly; please report this")
    assert told.reopened == 2
    assert filled.daemon.foreign_changes == {Family.IPV6: 1}
    assert filled.daemon.sync()
    assert filled.namespace.run(["nft", "list", "chain", "ip", "knft", "services"]).stdout == before
