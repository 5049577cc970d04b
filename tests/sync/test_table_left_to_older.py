"""While the Daemon leaves a table to an older version of knft, it neither syncs nor audits it, and loses no change."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.daemon import Daemon
from knft.sync.foreign_change_watch import OLDER_INSTANCE_POLL_SECONDS, POLL_SECONDS
from knft.sync.foreign_changes import UNDELAYED_REPETITIONS
from knft.sync.observer import SyncObserver
from knft.sync.older_instance import OlderInstance
from tests.support.kernel_harness import service, slices
from tests.support.memory_table import MemoryTable
from tests.sync.memory_harness import MemoryHarness

PORT_ID = 4711
OTHER_RULES = ForeignChange(Family.IPV4, frozenset({"rules-00000002"}), process="knft (pid 7)", port_id=PORT_ID)
LEFT = (
    "IPv4: knft (pid 7), an older version, changes the table again and again: stop one of the two; "
    "this knft makes no change until that process ends"
)


class Queued(SyncObserver):
    """Counts the changes that make a sync due."""

    count = 0

    def sync_queued(self, _: Family) -> None:
        self.count += 1


class Node:
    """A Daemon with a table in memory, beside an older version whose socket is open."""

    def __init__(self) -> None:
        self.harness, self.queued, self.open_ports = MemoryHarness(), Queued(), {PORT_ID}
        older = {Family.IPV4: OlderInstance("rules-00000001", self.open_ports.__contains__)}
        self.daemon = Daemon(
            (self.harness.proxier,), self.harness.dispatcher, self._audit_table, (self.queued,), older_instances=older
        )
        self.audits = 0
        self.harness.apply(service("web"), *slices("web", [1]))
        assert self.daemon.sync()

    @contextmanager
    def _audit_table(self, _: Family) -> Iterator[MemoryTable]:
        self.audits += 1
        yield self.harness.table

    def receive(self, *changes: ForeignChange, before: Callable[[], object] = lambda: None) -> list[float]:
        """Let the daemon receive these changes, then nothing once; return how long it wanted to wait each time."""
        stop, waits, pending = threading.Event(), list[float](), list(changes)

        class Monitor:
            def receive(self, seconds: float) -> tuple[ForeignChange, ...]:
                before()
                waits.append(seconds)
                if not pending:
                    stop.set()
                    return ()
                return (pending.pop(0),)

        self.daemon.foreign_changes.run(Monitor(), stop)  # type: ignore[arg-type]
        return waits

    def leave_table(self) -> None:
        """Let the older version change the table after each check."""
        for _ in range(UNDELAYED_REPETITIONS + 2):
            assert not self.daemon.foreign_changes.is_left(Family.IPV4)
            self.receive(OTHER_RULES)
            assert self.daemon.sync()
        assert self.daemon.foreign_changes.is_left(Family.IPV4)


@pytest.fixture
def node() -> Node:
    return Node()


def test_table_is_left_and_taken_back(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.leave_table()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [LEFT]
    commits, queued = len(node.harness.table.transactions), node.queued.count
    node.harness.apply(*slices("web", [1, 2]))
    node.daemon.handle(())
    assert node.daemon.sync()
    assert node.daemon.audit()
    assert (len(node.harness.table.transactions), node.queued.count, node.audits) == (commits, queued, 0)
    assert node.receive(OTHER_RULES) == [OLDER_INSTANCE_POLL_SECONDS] * 2
    assert node.daemon.foreign_changes.check_delays() == {Family.IPV4: 0.0}

    node.harness.table.chains.pop("services")
    node.open_ports.clear()
    caplog.clear()
    node.receive()
    assert caplog.messages == ["IPv4: the older version of knft has ended; reading the table back"]
    assert node.receive() == [POLL_SECONDS]
    assert node.daemon.sync()
    assert node.harness.differences() == []
    assert node.daemon.audit()
    assert node.audits == 1


def test_changes_of_a_left_table_are_counted(node: Node) -> None:
    node.leave_table()
    before = node.daemon.foreign_changes.counts[Family.IPV4]
    node.receive(OTHER_RULES, OTHER_RULES)
    assert node.daemon.foreign_changes.counts[Family.IPV4] == before + 2


def test_table_is_not_left_without_an_older_instance() -> None:
    """Without the instance lock, this may be another process of the same version, which would leave the table too."""
    harness = MemoryHarness()
    daemon = Daemon((harness.proxier,), harness.dispatcher)
    for _ in range(2 * UNDELAYED_REPETITIONS):
        daemon.foreign_changes.record(OTHER_RULES)
        assert daemon.sync()
    assert not daemon.foreign_changes.is_left(Family.IPV4)
