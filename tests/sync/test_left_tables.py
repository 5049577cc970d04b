"""While the Daemon leaves a table to an older version of knft, it neither syncs nor audits it, and loses no change."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.daemon import Daemon
from knft.sync.foreign_change_watch import OLDER_VERSION_POLL_SECONDS, POLL_SECONDS
from knft.sync.observer import SyncObserver
from knft.sync.older_version import CHANGES_BEFORE_LEAVING, OlderVersion
from tests.support.kernel_harness import service, slices
from tests.support.memory_table import MemoryTable
from tests.sync.memory_harness import MemoryHarness

OTHER_RULES = ForeignChange(Family.IPV4, frozenset({"rules-00000002"}), process="knft (pid 7)")
LEFT = (
    "IPv4: knft (pid 7) does not hold the instance lock and changes the table again and again: stop one of the two; "
    "until it ends, this knft does not change the table"
)


class Calls(SyncObserver):
    """The calls that an observer got."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def sync_queued(self, _: Family) -> None:
        self.names.append("queued")

    def sync_started(self, _: Family) -> None:
        self.names.append("started")

    def table_left(self, _: Family) -> None:
        self.names.append("left")


class Node:
    """A Daemon with a table in memory, beside an older version that listens."""

    def __init__(self) -> None:
        self.harness, self.calls, self.listeners = MemoryHarness(), Calls(), frozenset({7})
        older = OlderVersion("rules-00000001", self.read_listeners)
        self.daemon = Daemon(
            (self.harness.proxier,),
            self.harness.dispatcher,
            self._audit_table,
            (self.calls,),
            older_versions={Family.IPV4: older},
        )
        self.audits = 0
        self.harness.apply(service("web"), *slices("web", [1]))
        assert self.daemon.sync()

    def read_listeners(self) -> frozenset[int]:
        return self.listeners

    @contextmanager
    def _audit_table(self, _: Family) -> Iterator[MemoryTable]:
        self.audits += 1
        yield self.harness.table

    def receive(self, *changes: ForeignChange | Exception) -> list[float]:
        """Let the daemon receive these changes, then none; return how long it wanted to wait each time."""
        stop, waits, pending = threading.Event(), list[float](), list(changes)

        class Monitor:
            def receive(self, seconds: float) -> tuple[ForeignChange, ...]:
                waits.append(seconds)
                if not pending:
                    stop.set()
                    return ()
                change = pending.pop(0)
                if isinstance(change, Exception):
                    raise change
                return (change,)

            def reopen(self) -> None:
                stop.set()

        self.daemon.foreign_changes.run(Monitor(), stop)  # type: ignore[arg-type]
        return waits

    def leave_table(self) -> None:
        """Let the older version change the table after each sync."""
        for _ in range(CHANGES_BEFORE_LEAVING):
            assert not self.is_left
            self.receive(OTHER_RULES)
            assert self.daemon.sync()
        assert self.is_left

    @property
    def is_left(self) -> bool:
        return self.daemon.foreign_changes.is_left(Family.IPV4)

    def end_older_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listeners = frozenset()
        monkeypatch.setattr("knft.sync.older_version.MAX_LEFT_SECONDS", 0.0)
        self.daemon.foreign_changes._older_versions[Family.IPV4]._left_at -= 3600


@pytest.fixture
def node() -> Node:
    return Node()


def test_table_is_left_and_taken_back(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.leave_table()
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [LEFT]
    assert node.calls.names[-1] == "left"
    commits, calls = len(node.harness.table.transactions), len(node.calls.names)
    node.harness.apply(*slices("web", [1, 2]))
    node.daemon.release_removals()
    assert node.daemon.sync()
    assert node.daemon.audit()
    assert (len(node.harness.table.transactions), len(node.calls.names), node.audits) == (commits, calls, 0)
    assert node.receive(OTHER_RULES) == [OLDER_VERSION_POLL_SECONDS] * 2
    assert node.daemon.foreign_changes.check_delays() == {Family.IPV4: 0.0}

    node.harness.table.chains.pop("services")
    node.end_older_version(monkeypatch)
    caplog.clear()
    assert node.receive() == [POLL_SECONDS]
    assert caplog.messages == ["IPv4: the other knft process has ended; reading the table back"]
    assert node.daemon.sync()
    assert node.harness.differences() == []
    assert node.daemon.audit()
    assert node.audits == 1


def test_changes_of_a_left_table_are_counted(node: Node) -> None:
    node.leave_table()
    before = node.daemon.foreign_changes.counts[Family.IPV4]
    node.receive(OTHER_RULES, OTHER_RULES)
    assert node.daemon.foreign_changes.counts[Family.IPV4] == before + 2


def test_running_sync_makes_no_further_change_after_the_table_is_left(node: Node) -> None:
    """It has postponed changes, which it would send in transactions of their own."""
    for _ in range(CHANGES_BEFORE_LEAVING - 1):
        node.receive(OTHER_RULES)
        assert node.daemon.sync()
    names = [f"sticky-{number}" for number in range(4)]
    node.harness.apply(*(service(name, number, sessionAffinity="ClientIP") for number, name in enumerate(names, 20)))
    assert node.daemon.sync()
    started = node.calls.names.count("started")
    node.harness.table.on_commit = lambda _: node.daemon.foreign_changes.record(OTHER_RULES)
    for name in names:
        node.harness.apply(*slices(name, range(600)))
    assert node.daemon.sync()
    assert node.is_left
    assert node.calls.names.count("started") == started + 1
    assert not node.harness.proxier.is_complete


def test_end_is_noticed_without_notifications(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knft.sync.foreign_change_watch.REOPEN_SECONDS", 0.0)
    node.leave_table()
    node.end_older_version(monkeypatch)
    caplog.clear()
    node.receive(KernelError("no notifications"))
    assert caplog.messages[0] == "IPv4: the other knft process has ended; reading the table back"
    assert not node.is_left


def test_unreadable_listeners_leave_everything_as_it_is(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.leave_table()

    def fail() -> frozenset[int]:
        msg = "refused for the test"
        raise KernelError(msg)

    older = node.daemon.foreign_changes._older_versions[Family.IPV4]
    monkeypatch.setattr(older, "_other_listeners", fail)
    older._left_at -= 3600
    assert node.receive() == [OLDER_VERSION_POLL_SECONDS]
    assert node.is_left
    older.take_back()
    node.receive(OTHER_RULES)
    assert not node.is_left
