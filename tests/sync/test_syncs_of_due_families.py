"""A run of the sync loop syncs the families that have changes, and those whose last sync left something to do."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import NoReturn

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.model.objects import KubeObject, ObjectChange
from knft.sync.daemon import Daemon
from knft.sync.dispatch import Dispatcher
from knft.sync.invalidation import Invalidation
from knft.sync.observer import SyncObserver
from knft.sync.proxier import Proxier
from knft.sync.state import ServiceState
from tests.support.kernel_harness import CONFIG, decode_manifest, service, slices
from tests.support.memory_table import MemoryTable
from tests.support.waiting import TIMEOUT, wait_until

V4, V6 = Family.IPV4, Family.IPV6
BOTH = [V4, V6]


class _Calls(SyncObserver):
    """The families whose syncs were queued and started since the last call of ``take``."""

    def __init__(self) -> None:
        self.queued: list[Family] = []
        self.started: list[Family] = []

    def sync_queued(self, family: Family) -> None:
        self.queued.append(family)

    def sync_started(self, family: Family) -> None:
        self.started.append(family)

    def take(self) -> tuple[list[Family], list[Family]]:
        taken = self.queued, self.started
        self.queued, self.started = [], []
        return taken


class _Node:
    """A Daemon with the tables of both families in memory, and a dual-stack Service."""

    def __init__(self) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.states = {family: ServiceState(family, CONFIG.node_name, start) for family in Family}
        self.tables = {family: MemoryTable(family) for family in Family}
        self.proxiers = {
            family: Proxier(family, CONFIG, self.states[family], self.tables[family], lambda: 0.0) for family in Family
        }
        dispatcher = Dispatcher(CONFIG, tuple(self.states.values()))
        dispatcher.refresh_node()
        self.calls = _Calls()
        self.daemon = Daemon(tuple(self.proxiers.values()), dispatcher, observers=(self.calls,))
        self._objects: dict[str, KubeObject] = {}
        self.change(service("web"), *slices("web", [1]))
        assert self.daemon.sync_due()
        assert self.calls.take() == (BOTH * 2, BOTH)

    def change(self, *items: dict[str, object]) -> None:
        """Pass changed objects to the daemon, one at a time."""
        for item in items:
            current = decode_manifest(item)
            name = current.metadata.name
            self.daemon.handle([ObjectChange(self._objects.get(name), current)])
            self._objects[name] = current

    def change_endpoints(self, family: Family, number: int) -> None:
        """Replace the endpoints of a family."""
        (changed,) = (each for each in slices("web", [number]) if each["addressType"] == family.value)
        self.change(changed)


@pytest.fixture
def node() -> _Node:
    return _Node()


@pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)
def test_slice_is_synced_in_its_family_only(node: _Node, family: Family) -> None:
    node.change_endpoints(family, 2)
    assert node.daemon.sync_due()
    assert node.calls.take() == ([family], [family])


def test_service_is_synced_in_the_families_that_it_has(node: _Node) -> None:
    node.change(service("web", ports=[{"name": "http", "port": 81}]))
    assert node.daemon.sync_due()
    assert node.calls.take() == (BOTH, BOTH)


def test_failed_sync_is_repeated_with_the_next_change_of_the_other_family(node: _Node) -> None:
    def refuse(*_: object) -> NoReturn:
        msg = "refused for the test"
        raise KernelError(msg)

    node.tables[V6].on_commit = node.tables[V6].on_read = refuse
    node.change_endpoints(V6, 2)
    assert not node.daemon.sync_due()
    node.tables[V6].stop_failing()
    node.calls.take()
    node.change_endpoints(V4, 2)
    assert node.daemon.sync_due()
    assert node.calls.take() == ([V4], BOTH)


def test_family_that_waits_for_a_retry_is_synced_with_the_other(node: _Node) -> None:
    """The kernel refuses a Service port, which is quarantined."""

    def refuse_endpoints(transaction: object) -> None:
        if "fd00" in str(transaction):
            msg = "refused for the test"
            raise KernelError(msg)

    node.tables[V6].on_commit = refuse_endpoints
    node.change_endpoints(V6, 2)
    assert node.daemon.sync_due()
    node.calls.take()
    node.change_endpoints(V4, 2)
    assert node.daemon.sync_due()
    assert node.calls.take() == ([V4], BOTH)


def _release(node: _Node) -> None:
    node.daemon.release_removals()


def _run_without_a_request(node: _Node) -> None:
    """Let the time since the last sync pass."""


@pytest.mark.parametrize("cause", [_release, _run_without_a_request])
def test_other_causes_sync_both_families(node: _Node, cause: Callable[[_Node], None]) -> None:
    cause(node)
    assert node.daemon.sync_due()
    assert node.calls.take()[1] == BOTH


def test_audit_that_finds_a_difference_requests_a_sync_of_both_families(node: _Node) -> None:
    """At once, and also if one family has changes."""
    tables = node.tables
    daemon = Daemon(tuple(node.proxiers.values()), Dispatcher(CONFIG, ()), lambda family: nullcontext(tables[family]))
    assert daemon.sync_due()
    requests: list[None] = []
    daemon._runner.request = lambda: requests.append(None)  # type: ignore[method-assign]
    assert daemon.audit()
    assert requests == []
    tables[V6].elements["service-ips"].clear()
    daemon._queue_sync([V4])
    assert daemon.audit()
    assert len(requests) == 2
    assert daemon.sync_due()
    assert tables[V6].elements["service-ips"]


def test_death_of_the_idle_worker_process_requests_a_sync_of_both_families(node: _Node) -> None:
    """Also if one family has changes."""
    stop, deaths = threading.Event(), iter([True])

    class Library(WorkerProcess):
        def replace_if_died_within(self, seconds: float) -> bool:
            del seconds
            died = next(deaths, False)
            if not died:
                stop.set()
            return died

    node.change_endpoints(V4, 2)
    node.daemon.watch_worker_process(Library(), stop)
    assert node.daemon.sync_due()
    assert node.calls.take()[1] == BOTH


def test_audits_end_with_the_daemon(node: _Node) -> None:
    stop, others = threading.Event(), threading.enumerate()
    running = threading.Thread(target=node.daemon.run, args=[stop])
    running.start()

    def audits() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "audit" and thread not in others]

    wait_until(lambda: bool(audits()), "no audit is planned")
    stop.set()
    running.join(TIMEOUT)
    wait_until(lambda: not audits(), "the thread of the audits has not ended")


def test_planned_full_sync_does_not_wait_for_a_change_of_its_family(
    node: _Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync may find out that the next one has to read the table."""
    sync = node.proxiers[V6].sync

    def sync_and_invalidate() -> object:
        report = sync()
        node.proxiers[V6].invalidate(Invalidation())
        return report

    with monkeypatch.context() as patched:
        patched.setattr(node.proxiers[V6], "sync", sync_and_invalidate)
        node.change_endpoints(V6, 2)
        assert node.daemon.sync_due()
    node.calls.take()
    reads = node.tables[V6].reads
    node.change_endpoints(V4, 2)
    assert node.daemon.sync_due()
    assert node.calls.take() == ([V4], BOTH)
    assert node.tables[V6].reads == reads + 1


def test_observers_without_the_method_are_not_called(node: _Node, caplog: pytest.LogCaptureFixture) -> None:
    """And an error in an observer is logged, with the name of its class."""

    class Failing(SyncObserver):
        def sync_started(self, family: Family) -> NoReturn:
            raise ZeroDivisionError(family.value)

    daemon = Daemon(tuple(node.proxiers.values()), Dispatcher(CONFIG, ()), observers=(Failing(), SyncObserver()))
    assert daemon.sync_due()
    assert caplog.messages == ["Failing failed unexpectedly; please report this"] * 2
