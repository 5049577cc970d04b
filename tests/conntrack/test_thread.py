"""FlowCleaner's thread: when it looks at flows, when it looks again, when it rests, and what goes on beside it."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import pytest

from knft.errors import KernelError
from knft.kernel.conntrack import FlowTable, Forgotten, Listing
from knft.model.names import Family
from knft.sync import conntrack
from knft.sync.conntrack import FlowCleaner
from tests.conntrack.entries import make, make_many, present
from tests.conntrack.hearing import Counted, Hearing, counted
from tests.conntrack.objects import ENDPOINTS, HANG, VIPS, flows_of, is_stale, meddle, slice_of
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


@pytest.fixture
def running(hearing: Hearing, namespace: Namespace) -> Iterator[Hearing]:
    """The cleaner's own thread runs, in the namespace."""
    with _running(hearing, namespace, threading.Event()):
        yield hearing


@contextmanager
def _running(hearing: Hearing, namespace: Namespace, stop: threading.Event) -> Iterator[None]:
    def run() -> None:
        with namespace.entered():
            hearing.cleaner.run(stop)

    thread = threading.Thread(target=run, name="conntrack")
    thread.start()
    yield
    stop.set()
    thread.join(HANG)
    assert not thread.is_alive()


def _until(count: int, hearing: Hearing) -> None:
    deadline = time.monotonic() + HANG
    while len(hearing.told) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_its_thread_looks_after_every_sync_that_matters(running: Hearing) -> None:
    flows = flows_of(4)
    make(flows)
    running.sync()
    _until(2, running)
    assert present(4) == {entry for entry in flows if not is_stale(4, entry)}
    running._harness.apply(slice_of(4, serving=False))
    running.sync()
    _until(3, running)
    assert not [entry for entry in present(4) if entry.protocol == "UDP" and entry.dialled[1] == 8000]


def test_a_kernel_that_refuses_is_said_once_and_asked_again(
    running: Hearing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By and by, though nothing changes any more."""
    tries: list[int] = []

    def refuse(family: int) -> None:
        tries.append(family)
        msg = "refused for the test"
        raise KernelError(msg)

    monkeypatch.setattr(conntrack, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(running.cleaner, "_clock", lambda: 100 * time.monotonic())
    flows = flows_of(4)
    make(flows)
    with monkeypatch.context() as patch:
        patch.setattr(conntrack, "flow_table", refuse)
        running.sync()
        deadline = time.monotonic() + HANG
        while tries.count(2) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert caplog.messages.count("IPv4: refused for the test") == 1
    _until(2, running)
    assert present(4) == {entry for entry in flows if not is_stale(4, entry)}


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The cleaner's."""
    made = Clock()
    monkeypatch.setattr(hearing.cleaner, "_clock", made)
    monkeypatch.setattr(conntrack, "LOOK_SECONDS", 0.001)
    return made


def _refuse(*_: Any) -> NoReturn:
    msg = "refused for the test"
    raise KernelError(msg)


def _break(*_: Any) -> NoReturn:
    msg = "nobody expects this"
    raise ValueError(msg)


def _interrupt(table: FlowTable, is_wanted: Any, found: Any = FlowTable.find) -> Listing:
    return Listing(found(table, is_wanted).flows[1:], complete=False)


def _forget_one(table: FlowTable, flows: Any, forgotten: Any = FlowTable.forget) -> Forgotten:
    return Forgotten(forgotten(table, flows[:1]).count, "refused for the test")


TROUBLES: dict[str, tuple[Any, str, Any]] = {
    "nobody answers": (conntrack, "flow_table", _refuse),
    "it cannot be listed": (FlowTable, "find", _refuse),
    "the listing is interrupted": (FlowTable, "find", _interrupt),
    "a deletion is refused": (FlowTable, "forget", _forget_one),
    "the machine's addresses are not told": (FlowCleaner, "_node_port_addresses", _refuse),
    "nobody knows why": (FlowTable, "find", _break),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_look_that_was_not_the_whole_of_it_is_repeated(
    hearing: Hearing, clock: Clock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After a second, without any change; once it was, there is no other."""
    flows = flows_of(4)
    make(flows)
    hearing.sync()
    with monkeypatch.context() as patch:
        patch.setattr(*TROUBLES[name])
        for family in hearing.cleaner._take_due():
            hearing.cleaner._reconcile_and_say(family)
    left = {entry for entry in flows if not is_stale(4, entry)}
    assert present(4) > left
    clock.now += 0.9
    assert hearing.cleaner._take_due() == []
    clock.now += 0.1
    hearing.reconcile()
    assert present(4) == left
    clock.now += 1000
    assert hearing.cleaner._take_due() == []
    # All that were forgotten were told of, whatever became of the others.
    assert sum(count for _, count in hearing.told) == len(flows) - len(left)


def test_the_longer_it_goes_wrong_the_later_it_is_repeated(
    hearing: Hearing, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a minute; a change is looked at anyway, and a look that succeeds begins anew."""
    make(flows_of(4))
    tries: list[float] = []

    def go_on(until: float) -> list[float]:
        tries.clear()
        while clock.now < until:
            if Family.IPV4 in hearing.cleaner._take_due():
                tries.append(clock.now)
                hearing.cleaner._reconcile_and_say(Family.IPV4)
            clock.now += 0.5
        return tries.copy()

    hearing.sync()
    with monkeypatch.context() as patch:
        patch.setattr(conntrack, "flow_table", _refuse)
        assert go_on(200) == [0, 1, 3, 7, 15, 31, 63, 123, 183]
        hearing._harness.apply(slice_of(4, serving=False))
        hearing.sync()
        assert go_on(300) == [200, 260]
    assert go_on(400) == [320]
    hearing._harness.apply(slice_of(4))
    hearing.sync()
    with monkeypatch.context() as patch:
        patch.setattr(conntrack, "flow_table", _refuse)
        assert go_on(410) == [400, 401, 403, 407]


class Rests(threading.Event):
    """Tells how long somebody would have rested, and does not wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return self.is_set()


def test_it_rests_after_what_it_has_computed_and_never_after_waiting(
    hearing: Hearing, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after waiting for something to do, nor after waiting for a sync to end."""
    monkeypatch.setattr(conntrack, "LOOK_SECONDS", 0.001)
    computed, stop, looks = Clock(), Rests(), list[None]()
    taken, reconciled = hearing.cleaner._take_due, hearing.cleaner.reconcile

    def take() -> list[Family]:
        looks.append(None)
        return taken()

    def reconcile(family: Family) -> int:
        computed.now += 0.25
        return reconciled(family)

    monkeypatch.setattr(hearing.cleaner, "_computed", computed)
    monkeypatch.setattr(hearing.cleaner, "_take_due", take)
    monkeypatch.setattr(hearing.cleaner, "reconcile", reconcile)
    make(flows_of(4))
    hearing.sync()
    hearing.cleaner.begun(Family.IPV4)
    waiting = threading.Event()
    meddle(monkeypatch, waiting.set)
    with _running(hearing, namespace, stop):
        assert waiting.wait(HANG)
        proxier = hearing._harness.proxiers[Family.IPV4]
        hearing.cleaner.synced(proxier.sync(), proxier.state)
        idle, deadline = len(looks) + 20, time.monotonic() + HANG
        while len(looks) < idle:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    # Both families at once.
    assert stop.seconds == [2 * 0.25 * conntrack.REST]


COUNT, STALE = 100_000, 25_000


class Syncing:
    """A thread that changes the rules all the while: how much had been listed and deleted when each sync was done."""

    def __init__(self, hearing: Hearing, requests: Counted) -> None:
        self._hearing, self._requests, self._stop = hearing, requests, threading.Event()
        self._thread = threading.Thread(target=self._sync)
        self.seen: list[tuple[int, int]] = []

    def _sync(self) -> None:
        for serving in itertools.cycle([False, True]):
            if self._stop.is_set():
                return
            self._hearing._harness.apply(slice_of(6, serving=serving))
            self._hearing.sync()
            self.seen.append((self._requests.listings, self._requests.deletions))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(HANG)
        assert not self._thread.is_alive()


def test_a_hundred_thousand_flows(hearing: Hearing, namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing, and a deletion for each that is stale; syncs go on meanwhile, while they are listed and deleted."""
    if int(namespace.read_sysctl("net.netfilter.nf_conntrack_max")) < 2 * COUNT:
        pytest.fail("conntrack has too little room on this machine: net.netfilter.nf_conntrack_max")
    serving, deleted = (ENDPOINTS[4]["serving"], 8080), (ENDPOINTS[4]["deleted"], 8080)
    make_many(COUNT, (VIPS[4][0], 8000), [serving, serving, deleted, serving])
    hearing.sync()
    requests: Counted = counted(monkeypatch)
    with Syncing(hearing, requests) as syncing:
        assert hearing.cleaner.reconcile(Family.IPV4) == STALE
    assert (requests.listings, requests.deletions) == (1, STALE)
    assert syncing.seen.count((1, 0)) >= 10
    assert len({count for _, count in syncing.seen if 0 < count < STALE}) >= 10
    assert int(namespace.read_sysctl("net.netfilter.nf_conntrack_count")) == COUNT - STALE
    assert hearing.cleaner.reconcile(Family.IPV4) == 0
