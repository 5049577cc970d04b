"""FlowCleaner's thread: when it checks flows, retries and sleeps, and that syncs continue during checks."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.conntrack import DeletedFlows, FlowDump, FlowTable
from knft.sync import flow_cleaner
from knft.sync.flow_cleaner import FlowCleaner
from tests.support.conntrack_entries import add_entries, add_many_entries, listed_entries
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import service, slices
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until
from tests.sync.recording_cleaner import NetlinkCounter, RecordingCleaner, count_netlink_requests
from tests.sync.udp_services import ENDPOINTS, TIMEOUT, VIPS, flows_of, is_stale, run_before_settling, slice_of

pytestmark = pytest.mark.kernel


@pytest.fixture
def running(recording_cleaner: RecordingCleaner, namespace: Namespace) -> Iterator[RecordingCleaner]:
    """Run the cleaner's thread in the namespace."""
    with _running(recording_cleaner, namespace, threading.Event()):
        yield recording_cleaner


@contextmanager
def _running(recording_cleaner: RecordingCleaner, namespace: Namespace, stop: threading.Event) -> Iterator[None]:
    def run() -> None:
        with namespace.entered():
            recording_cleaner.cleaner.run(stop)

    thread = threading.Thread(target=run, name="conntrack")
    thread.start()
    yield
    stop.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def _wait_for_deletions(count: int, recording_cleaner: RecordingCleaner) -> None:
    wait_until(lambda: len(recording_cleaner.deletions) >= count, lambda: recording_cleaner.deletions)


def test_thread_checks_flows_after_each_relevant_sync(running: RecordingCleaner) -> None:
    flows = flows_of(4)
    add_entries(flows)
    running.sync()
    _wait_for_deletions(2, running)
    assert listed_entries(4) == {entry for entry in flows if not is_stale(4, entry)}
    running.harness.apply(slice_of(4, serving=False))
    running.sync()
    _wait_for_deletions(3, running)
    assert not [
        entry for entry in listed_entries(4) if entry.protocol == "UDP" and entry.original_destination[1] == 8000
    ]


def test_end_of_each_sync_wakes_a_pass_that_waits_for_it(
    recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(recording_cleaner.cleaner._sync_ended, "notify_all", lambda: woken.append(True))
    recording_cleaner.sync()
    after_success = len(woken)
    recording_cleaner.cleaner.sync_failed(Family.IPV4, 0.1, "refused")
    assert 0 < after_success < len(woken)


def test_sync_without_changes_of_udp_endpoints_does_not_wake_the_thread(
    recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wake-up costs a tenth of the CPU time of a change."""
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    woken: list[bool] = []
    monkeypatch.setattr(recording_cleaner.cleaner._became_due, "notify_all", lambda: woken.append(True))
    recording_cleaner.harness.apply(service("web"), *slices("web", [1, 2]))
    recording_cleaner.sync()
    assert not woken
    recording_cleaner.harness.apply(slice_of(4, serving=False))
    recording_cleaner.sync()
    assert woken


def test_refused_dump_is_logged_once_and_retried(
    running: RecordingCleaner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread retries even if nothing changes."""
    attempts: list[int] = []

    def refuse(family: int) -> None:
        attempts.append(family)
        msg = "refused for the test"
        raise KernelError(msg)

    monkeypatch.setattr(flow_cleaner, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(running.cleaner, "_clock", lambda: 100 * time.monotonic())
    flows = flows_of(4)
    add_entries(flows)
    with monkeypatch.context() as patch:
        patch.setattr(flow_cleaner, "open_flow_table", refuse)
        running.sync()
        wait_until(lambda: attempts.count(2) >= 4, lambda: attempts)
    assert caplog.messages.count("IPv4: refused for the test") == 1
    _wait_for_deletions(2, running)
    assert listed_entries(4) == {entry for entry in flows if not is_stale(4, entry)}


@pytest.fixture
def clock(recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Replace the cleaner's clock."""
    fake_clock = FakeClock(0.0)
    monkeypatch.setattr(recording_cleaner.cleaner, "_clock", fake_clock)
    monkeypatch.setattr(flow_cleaner, "POLL_SECONDS", 0.001)
    return fake_clock


def _refuse(*_: Any) -> NoReturn:
    msg = "refused for the test"
    raise KernelError(msg)


def _break(*_: Any) -> NoReturn:
    msg = "unexpected error for the test"
    raise ValueError(msg)


def _interrupt(table: FlowTable, is_match: Any, dump: Any = FlowTable.dump) -> FlowDump:
    return FlowDump(dump(table, is_match).flows[1:], complete=False)


def _delete_one(table: FlowTable, flows: Any, delete: Any = FlowTable.delete) -> DeletedFlows:
    return DeletedFlows(delete(table, flows[:1]).count, "refused for the test")


FAILURES: dict[str, tuple[Any, str, Any]] = {
    "conntrack cannot be opened": (flow_cleaner, "open_flow_table", _refuse),
    "the dump fails": (FlowTable, "dump", _refuse),
    "the dump is interrupted": (FlowTable, "dump", _interrupt),
    "a deletion is refused": (FlowTable, "delete", _delete_one),
    "the node's addresses are unknown": (FlowCleaner, "_node_port_addresses", _refuse),
    "an unexpected error": (FlowTable, "dump", _break),
}


@pytest.mark.parametrize("name", FAILURES)
def test_incomplete_check_is_repeated(
    recording_cleaner: RecordingCleaner, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After a second, without any change; a complete check is not repeated."""
    flows = flows_of(4)
    add_entries(flows)
    recording_cleaner.sync()
    with monkeypatch.context() as patch:
        patch.setattr(*FAILURES[name])
        for family in recording_cleaner.cleaner._start_due_passes():
            recording_cleaner.run_pass(family)
    left = {entry for entry in flows if not is_stale(4, entry)}
    assert listed_entries(4) > left
    clock.now += 0.9
    assert recording_cleaner.cleaner._start_due_passes() == []
    clock.now += 0.1
    recording_cleaner.run_passes()
    assert listed_entries(4) == left
    clock.now += 1000
    assert recording_cleaner.cleaner._start_due_passes() == []
    # All deletions were reported, also those of incomplete checks.
    assert sum(count for _, count in recording_cleaner.deletions) == len(flows) - len(left)


def test_failing_checks_are_retried_with_backoff(
    recording_cleaner: RecordingCleaner, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay grows to a minute. A sync triggers a check anyway, and a successful check resets the delay."""
    add_entries(flows_of(4))
    attempts: list[float] = []

    def run_until(until: float) -> list[float]:
        attempts.clear()
        while clock.now < until:
            if Family.IPV4 in recording_cleaner.cleaner._start_due_passes():
                attempts.append(clock.now)
                recording_cleaner.run_pass(Family.IPV4)
            clock.now += 0.5
        return attempts.copy()

    recording_cleaner.sync()
    with monkeypatch.context() as patch:
        patch.setattr(flow_cleaner, "open_flow_table", _refuse)
        assert run_until(200) == [0, 1, 3, 7, 15, 31, 63, 123, 183]
        recording_cleaner.harness.apply(slice_of(4, serving=False))
        recording_cleaner.sync()
        assert run_until(300) == [200, 260]
    assert run_until(400) == [320]
    recording_cleaner.harness.apply(slice_of(4))
    recording_cleaner.sync()
    with monkeypatch.context() as patch:
        patch.setattr(flow_cleaner, "open_flow_table", _refuse)
        assert run_until(410) == [400, 401, 403, 407]


class RecordingEvent(threading.Event):
    """Records how long a thread would have waited, and returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return self.is_set()


def test_thread_sleeps_in_proportion_to_its_cpu_time_only(
    recording_cleaner: RecordingCleaner, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time spent waiting for work or for a sync does not count."""
    monkeypatch.setattr(flow_cleaner, "POLL_SECONDS", 0.001)
    cpu_clock, stop, checks = FakeClock(0.0), RecordingEvent(), list[None]()
    start_due_passes, original_run_pass = (
        recording_cleaner.cleaner._start_due_passes,
        recording_cleaner.cleaner.run_pass,
    )

    def count_and_start() -> list[Family]:
        checks.append(None)
        return start_due_passes()

    def run_pass(family: Family) -> int:
        cpu_clock.now += 0.25
        return original_run_pass(family)

    monkeypatch.setattr(recording_cleaner.cleaner, "_thread_time", cpu_clock)
    monkeypatch.setattr(recording_cleaner.cleaner, "_start_due_passes", count_and_start)
    monkeypatch.setattr(recording_cleaner.cleaner, "run_pass", run_pass)
    add_entries(flows_of(4))
    recording_cleaner.sync()
    recording_cleaner.cleaner.sync_started(Family.IPV4)
    waiting = threading.Event()
    run_before_settling(monkeypatch, waiting.set)
    with _running(recording_cleaner, namespace, stop):
        assert waiting.wait(TIMEOUT)
        proxier = recording_cleaner.harness.proxiers[Family.IPV4]
        recording_cleaner.cleaner.sync_succeeded(proxier.sync(), proxier.state)
        idle_count = len(checks) + 20
        wait_until(lambda: len(checks) >= idle_count, "no more checks of an idle thread", interval=0.001)
    # The thread slept once, after checking both families.
    assert stop.seconds == [2 * 0.25 * flow_cleaner.IDLE_FACTOR]


FLOWS, STALE_FLOWS = 100_000, 25_000


class SyncLoop:
    """A thread that changes rules continuously, and records the requests sent by the end of each sync."""

    def __init__(self, recording_cleaner: RecordingCleaner, requests: NetlinkCounter) -> None:
        self._cleaner, self._requests, self._stop = recording_cleaner, requests, threading.Event()
        self._thread = threading.Thread(target=self._sync)
        self.request_counts: list[tuple[int, int]] = []

    def _sync(self) -> None:
        for serving in itertools.cycle([False, True]):
            if self._stop.is_set():
                return
            self._cleaner.harness.apply(slice_of(6, serving=serving))
            self._cleaner.sync()
            self.request_counts.append((self._requests.dumps, self._requests.deletions))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()


def test_syncs_continue_while_100_000_flows_are_checked(
    recording_cleaner: RecordingCleaner, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dump, and one deletion for each stale flow; syncs finish during both."""
    if int(namespace.read_sysctl("net.netfilter.nf_conntrack_max")) < 2 * FLOWS:
        pytest.fail("net.netfilter.nf_conntrack_max is too small on this host")
    serving, deleted = (ENDPOINTS[4]["serving"], 8080), (ENDPOINTS[4]["deleted"], 8080)
    add_many_entries(FLOWS, (VIPS[4][0], 8000), [serving, serving, deleted, serving])
    recording_cleaner.sync()
    requests: NetlinkCounter = count_netlink_requests(monkeypatch)
    with SyncLoop(recording_cleaner, requests) as sync_loop:
        assert recording_cleaner.cleaner.run_pass(Family.IPV4) == STALE_FLOWS
    assert (requests.dumps, requests.deletions) == (1, STALE_FLOWS)
    assert sync_loop.request_counts.count((1, 0)) >= 10
    assert len({count for _, count in sync_loop.request_counts if 0 < count < STALE_FLOWS}) >= 10
    assert int(namespace.read_sysctl("net.netfilter.nf_conntrack_count")) == FLOWS - STALE_FLOWS
    assert recording_cleaner.cleaner.run_pass(Family.IPV4) == 0
