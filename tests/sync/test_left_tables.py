"""While the Daemon leaves a table to an older version of knft, it neither syncs nor audits it, and loses no change."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.nft.objects import Chain
from knft.render import wide
from knft.sync.daemon import Daemon
from knft.sync.foreign_change_watch import OLDER_VERSION_POLL_SECONDS, POLL_SECONDS, ForeignChangeWatch
from knft.sync.observer import AuditResult, SyncObserver
from knft.sync.older_version import CHANGES_BEFORE_LEAVING, OlderVersion
from knft.sync.proxier import Proxier
from knft.sync.state import ServiceState
from tests.support.kernel_harness import CONFIG, service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.memory_table import MemoryTable

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

    def table_audited(self, _family: Family, _result: AuditResult) -> None:
        self.names.append("audited")

    def table_left(self, _: Family) -> None:
        self.names.append("left")


class Node:
    """A Daemon with a table in memory, beside an older version that listens."""

    def __init__(self) -> None:
        self.harness, self.calls, self.subscribers = MemoryHarness(), Calls(), frozenset({7})
        older = OlderVersion("rules-00000001", self.read_subscribers)
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

    def read_subscribers(self) -> frozenset[int]:
        return self.subscribers

    @contextmanager
    def _audit_table(self, _: Family) -> Iterator[MemoryTable]:
        self.audits += 1
        yield self.harness.table

    def receive(self, *changes: ForeignChange) -> list[float]:
        """Let the daemon receive these changes, then none; return how long it wanted to wait each time."""
        stop, waits, pending = threading.Event(), list[float](), list(changes)

        class Monitor:
            def receive(self, seconds: float) -> tuple[ForeignChange, ...]:
                waits.append(seconds)
                if not pending:
                    stop.set()
                    return ()
                return (pending.pop(0),)

        self.daemon.foreign_changes.run(Monitor(), stop)  # type: ignore[arg-type]
        return waits

    def leave_table(self) -> None:
        """Let the older version change the table after each sync."""
        for _ in range(CHANGES_BEFORE_LEAVING):
            assert not self.is_left()
            self.receive(OTHER_RULES)
            assert self.daemon.sync()
        assert self.is_left()

    def is_left(self) -> bool:
        return self.daemon.foreign_changes.is_left(Family.IPV4)

    def end_older_version(self) -> None:
        """End it, long after the table was left."""
        self.subscribers = frozenset()
        self.daemon.foreign_changes._older_versions[Family.IPV4]._left_at -= 120

    def count_requests(self, monkeypatch: pytest.MonkeyPatch) -> list[None]:
        """Return a list that gets an item for each sync that is requested."""
        requests: list[None] = []
        monkeypatch.setattr(self.daemon.foreign_changes, "_request_sync", lambda: requests.append(None))
        return requests


@pytest.fixture
def node() -> Node:
    return Node()


def test_differences_are_reported_before_the_sync_that_repairs_them_can_begin(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise that sync could end before knft history lists them, and they would never be listed as repaired."""
    node.harness.table.elements["cluster-ips"].clear()
    monkeypatch.setattr(node.harness.proxier, "invalidate", lambda _: node.calls.names.append("invalidated"))
    assert node.daemon.audit()
    assert node.calls.names[-2:] == ["audited", "invalidated"]


def test_table_is_left_and_taken_back(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.leave_table()
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [LEFT]
    assert node.calls.names[-1] == "left"
    commits, calls = len(node.harness.table.transactions), len(node.calls.names)
    node.harness.apply(*slices("web", [1, 2]))
    node.daemon._queue_sync([Family.IPV4])
    assert node.daemon.sync()
    assert node.daemon.audit()
    assert (len(node.harness.table.transactions), node.audits) == (commits, 0)
    assert set(node.calls.names[calls:]) == {"left"}
    assert node.receive(OTHER_RULES) == [OLDER_VERSION_POLL_SECONDS] * 2
    assert node.daemon.foreign_changes.check_delays() == {Family.IPV4: 0.0}

    node.harness.table.chains["services"] = Chain("services")
    node.end_older_version()
    caplog.clear()
    requests = node.count_requests(monkeypatch)
    assert node.receive() == [POLL_SECONDS]
    assert caplog.messages == ["IPv4: the other knft process may have ended; reading the table back"]
    assert len(requests) == 1
    assert node.daemon.sync()
    assert node.harness.differences() == []
    assert node.daemon.audit()
    assert node.audits == 1


def test_changes_of_a_left_table_are_counted(node: Node) -> None:
    node.leave_table()
    before = node.daemon.foreign_changes.counts[Family.IPV4]
    node.receive(OTHER_RULES, OTHER_RULES)
    assert node.daemon.foreign_changes.counts[Family.IPV4] == before + 2


def test_running_sync_makes_no_further_change_after_the_table_is_left(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has postponed changes, which it would send in transactions of their own."""
    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
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
    assert node.is_left()
    assert node.calls.names.count("started") == started + 1
    assert not node.harness.proxier.is_complete


def test_deleted_table_is_taken_back(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """By ``knft cleanup --force``, while another subscriber, such as ``nft monitor``, still runs."""
    node.leave_table()
    caplog.clear()
    node.receive(structs.replace(OTHER_RULES, table_gone=True))
    assert caplog.messages == ["IPv4: the table was deleted; reading the table back"]
    assert not node.is_left()


def test_sync_is_requested_when_the_table_is_left(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells the observers."""
    for _ in range(CHANGES_BEFORE_LEAVING - 1):
        node.daemon.foreign_changes.record(OTHER_RULES)
        assert node.daemon.sync()
    requests = node.count_requests(monkeypatch)
    node.daemon.foreign_changes.record(OTHER_RULES)
    assert len(requests) == 1


def test_end_is_noticed_while_notifications_fail(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knft.sync.foreign_change_watch.REOPEN_SECONDS", 0.0)
    node.leave_table()
    stop = threading.Event()

    class Failing:
        """Cannot be reopened until the table was taken back."""

        def receive(self, _seconds: float) -> tuple[ForeignChange, ...]:
            node.end_older_version()
            msg = "no notifications"
            raise KernelError(msg)

        def reopen(self) -> None:
            if node.is_left():
                msg = "refused for the test"
                raise KernelError(msg)
            stop.set()

    node.daemon.foreign_changes.run(Failing(), stop)  # type: ignore[arg-type]
    assert not node.is_left()


@pytest.mark.parametrize("error", [None, KernelError("refused for the test")])
def test_each_family_is_taken_back_alone(node: Node, error: KernelError | None) -> None:
    """The table of IPv4 stays left, because its older version runs, or because that is unknown."""
    state = ServiceState(Family.IPV6, CONFIG.node_name, datetime(2026, 1, 1, tzinfo=UTC))
    proxier6 = Proxier(Family.IPV6, CONFIG, state, MemoryTable(Family.IPV6), lambda: 0.0)
    subscribers: dict[Family, frozenset[int]] = {family: frozenset({7}) for family in Family}

    def subscribers4() -> frozenset[int]:
        if not subscribers[Family.IPV4] and error is not None:
            raise error
        return frozenset({7})

    older = {
        Family.IPV4: OlderVersion("rules-00000001", subscribers4),
        Family.IPV6: OlderVersion("rules-00000001", lambda: subscribers[Family.IPV6]),
    }
    watch = ForeignChangeWatch((node.harness.proxier, proxier6), lambda: None, older)
    for family in Family:
        for _ in range(CHANGES_BEFORE_LEAVING):
            watch.finish_check(family)
            watch.record(structs.replace(OTHER_RULES, family=family))
        assert watch.is_left(family)
        older[family]._left_at -= 120
        subscribers[family] = frozenset()
    watch._take_back_tables()
    assert [watch.is_left(family) for family in Family] == [True, False]


def test_unreadable_subscribers_leave_everything_as_it_is(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.leave_table()

    def fail() -> frozenset[int]:
        msg = "refused for the test"
        raise KernelError(msg)

    older = node.daemon.foreign_changes._older_versions[Family.IPV4]
    monkeypatch.setattr(older, "_other_subscribers", fail)
    older._left_at -= 120
    assert node.receive() == [OLDER_VERSION_POLL_SECONDS]
    assert node.is_left()
    older.take_back(time.monotonic())
    older.finish_sync()
    node.receive(OTHER_RULES)
    assert not node.is_left()
    caplog.clear()
    assert node.daemon.sync()
    assert caplog.messages[0] == "IPv4: knft (pid 7) changed the table: rules-00000002; reading the table back"
