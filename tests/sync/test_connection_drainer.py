"""ConnectionDrainer: when it ends which connections, with how many requests, and that syncs do not wait for it."""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, NoReturn

import pytest
from msgspec import structs

from knft.decide.lost_endpoints import LostConnections
from knft.errors import KernelError
from knft.families import Family
from knft.kernel.addresses import local_addresses
from knft.kernel.conntrack import FlowDump, FlowTable
from knft.sync.connection_drainer import GRACE_SECONDS, MAX_FILTERED_DUMPS, MAX_REPEAT_SECONDS, ConnectionDrainer
from knft.sync.flow_cleaner import FlowCleaner
from tests.support.conntrack_entries import Entry, add_entries, client_endpoints, listed_entries
from tests.support.draining import MANY, connect_to_endpoints, connect_to_other_endpoint, drained_service
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import CONFIG, KernelHarness, service, slices
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel
WEB = ("10.96.0.10", 80)
OTHERS = 100_000


def _web(numbers: Iterable[int], drain: str = "reset", name: str = "web", number: int = 10) -> list[dict[str, Any]]:
    item = service(name, number)
    annotated = item | {"metadata": item["metadata"] | {"annotations": {"knft.dev/drain": drain}}}
    return [annotated, *slices(name, list(numbers))]


class Drained:
    """A drainer with real syncs and a clock that the test sets; ``ended`` records its callbacks."""

    def __init__(self, namespace: Namespace) -> None:
        self.harness = KernelHarness(namespace)
        self.clock = FakeClock()
        self.ended: list[int] = []
        self.drainer = ConnectionDrainer(
            CONFIG, local_addresses, lambda _, count: self.ended.append(count), clock=self.clock
        )

    def sync(self, *objects: dict[str, Any]) -> None:
        """Change objects, and sync both families."""
        self.harness.apply(*objects)
        for family, proxier in self.harness.proxiers.items():
            self.drainer.sync_started(family)
            self.drainer.sync_succeeded(proxier.sync(), proxier.state)

    def pass_after(self, seconds: float) -> bool:
        """Run the due passes after some seconds; return whether there were any."""
        self.clock.now += seconds
        return self.drainer.run_due_passes()


@pytest.fixture
def drained(namespace: Namespace) -> Drained:
    """The drainer, with Service ``web`` and its endpoints 1 and 2."""
    found = Drained(namespace)
    found.sync(*_web([1, 2]))
    return found


def _address(number: int) -> tuple[str, int]:
    item, _ = slices("web", [number])
    return item["endpoints"][0]["addresses"][0], item["ports"][0]["port"]


def _entries(*numbers: int) -> list[Entry]:
    client = client_endpoints(4)
    return [Entry("TCP", next(client), WEB, _address(number)) for number in numbers]


def test_connections_end_some_seconds_after_the_endpoint_is_deleted(
    drained: Drained, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "knft")
    lost, kept = _entries(1, 2)
    add_entries([lost, kept])
    drained.sync(*_web([2]))
    assert not drained.pass_after(GRACE_SECONDS - 0.1)
    assert drained.pass_after(0.1)
    assert listed_entries(4) == {kept}
    assert drained.ended == [1]
    assert caplog.messages == ["IPv4: ended 1 TCP connections to deleted endpoints of default/web:http"]
    assert not drained.pass_after(1000)


def test_endpoint_that_is_moved_to_another_slice_keeps_its_connections(drained: Drained) -> None:
    """The controller may write the new slice after the old one; a sync between the two finds the endpoint gone."""
    entries = _entries(1, 2)
    add_entries(entries)
    drained.sync(*_web([2]))
    drained.pass_after(1)
    drained.sync(*_web([1, 2]))
    assert not drained.pass_after(1000)
    assert listed_entries(4) == set(entries)


def test_nothing_ends_while_a_sync_may_bring_the_endpoint_back(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections that are listed may be new ones. They are listed again when the rules in force are known."""
    entries = _entries(1)
    add_entries(entries)
    drained.sync(*_web([2]))
    dump = FlowTable.dump

    def dump_during_sync(*arguments: Any) -> FlowDump:
        drained.drainer.sync_started(Family.IPV4)
        return dump(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FlowTable, "dump", dump_during_sync)
        assert drained.pass_after(GRACE_SECONDS)
    assert listed_entries(4) == set(entries)
    assert not drained.pass_after(0.1)
    drained.sync()
    assert drained.pass_after(0)
    assert listed_entries(4) == set()


def test_quarantined_service_port_keeps_its_connections(drained: Drained) -> None:
    """Its rules still lead to the endpoint. They end when a sync, which need not find a change, has removed it."""
    entries = _entries(1)
    add_entries(entries)
    drained.harness.apply(*_web([2]))
    proxier = drained.harness.proxiers[Family.IPV4]
    report = proxier.sync()
    quarantined = dict.fromkeys(report.changed_service_ports, "refused for the test")
    drained.drainer.sync_succeeded(structs.replace(report, quarantined=quarantined), proxier.state)
    assert not drained.pass_after(1000)
    drained.drainer.sync_succeeded(structs.replace(report, changed_service_ports=frozenset()), proxier.state)
    drained.pass_after(GRACE_SECONDS)
    assert listed_entries(4) == set()


def test_endpoint_is_forgotten_if_the_kernel_refuses_for_long(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = _entries(1)
    add_entries(entries)
    drained.sync(*_web([2]))
    with monkeypatch.context() as patch:
        patch.setattr(FlowTable, "dump", _refuse)
        assert drained.pass_after(GRACE_SECONDS)
        assert drained.pass_after(MAX_REPEAT_SECONDS)
    assert not drained.pass_after(1000)
    assert listed_entries(4) == set(entries)


def test_ipv6_endpoints_with_one_port_need_one_dump(drained: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's filter passes the entries of all of them."""
    dumped: list[int] = []
    dump = FlowTable.dump

    def record(table: FlowTable, *arguments: Any) -> FlowDump:
        dumped.append(table._family)
        return dump(table, *arguments)

    monkeypatch.setattr(FlowTable, "dump", record)
    drained.sync(*_web([]))
    drained.pass_after(GRACE_SECONDS)
    assert dumped.count(Family.IPV4.number) == 2
    assert dumped.count(Family.IPV6.number) == 1


def test_nothing_ends_while_the_table_is_left_to_an_older_version(drained: Drained) -> None:
    """Its syncs are not known, so the endpoint may be back."""
    entries = _entries(1)
    add_entries(entries)
    drained.sync(*_web([2]))
    drained.drainer.table_left(Family.IPV4)
    drained.pass_after(1000)
    assert listed_entries(4) == set(entries)


def _refuse(*_: Any) -> NoReturn:
    msg = "refused for the test"
    raise KernelError(msg)


def test_refused_pass_is_repeated(
    drained: Drained, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The delay doubles, and the error is logged once."""
    add_entries(_entries(1))
    drained.sync(*_web([2]))
    drained.clock.now += GRACE_SECONDS
    with monkeypatch.context() as patch:
        patch.setattr(FlowTable, "dump", _refuse)
        attempts = [second for second in range(20) if drained.pass_after(1 if second else 0)]
    assert attempts == [0, 1, 3, 7, 15]
    assert caplog.messages == [
        f"{family.value}: could not end connections to deleted endpoints: refused for the test" for family in Family
    ]
    assert drained.pass_after(60)
    assert listed_entries(4) == set()


def test_many_deleted_endpoints_need_one_dump(drained: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each dump the kernel looks at all entries."""
    numbers = range(1, MAX_FILTERED_DUMPS + 3)
    drained.sync(*_web(numbers))
    add_entries(_entries(*numbers))
    requests: list[object] = []
    dump = FlowTable.dump

    def record(table: FlowTable, is_match: Any, reply_source: bytes | None = None) -> FlowDump:
        if table._family == Family.IPV4.number:
            requests.append(reply_source)
        return dump(table, is_match, reply_source)

    monkeypatch.setattr(FlowTable, "dump", record)
    drained.sync(*_web(numbers[1:]))
    drained.pass_after(GRACE_SECONDS)
    assert len(requests) == 1
    assert requests != [None]
    requests.clear()
    drained.sync(*_web([]))
    drained.pass_after(GRACE_SECONDS)
    assert requests == [None]
    assert listed_entries(4) == set()
    assert sum(drained.ended) == len(numbers)


def test_service_that_becomes_too_large_keeps_its_connections(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rules are removed, but its endpoints exist."""
    entries = _entries(1)
    add_entries(entries)
    monkeypatch.setattr("knft.track.size_limits.MAX_ENDPOINTS", 2)
    drained.sync(*_web([1, 2, 3]))
    assert not drained.pass_after(1000)
    assert listed_entries(4) == set(entries)


def test_contested_frontend_counts_for_its_owner_only(drained: Drained) -> None:
    """The older Service gets the external IP. The connections to it are of the older Service."""
    address = "203.0.113.1"

    def of(name: str, number: int, numbers: list[int], created: str) -> list[dict[str, Any]]:
        item, *rest = _web(numbers, "reset" if name == "web" else "keep", name, number)
        metadata = item["metadata"] | {"creationTimestamp": created}
        return [item | {"metadata": metadata, "spec": item["spec"] | {"externalIPs": [address]}}, *rest]

    drained.sync(*of("web", 10, [1, 2], "2026-01-02T00:00:00Z"), *of("old", 11, [1, 2], "2026-01-01T00:00:00Z"))
    client = client_endpoints(4)
    own, contested = (Entry("TCP", next(client), to, _address(1)) for to in (WEB, (address, 80)))
    add_entries([own, contested])
    drained.sync(*of("web", 10, [2], "2026-01-02T00:00:00Z"))
    drained.pass_after(GRACE_SECONDS)
    assert listed_entries(4) == {contested}


def _run_in_thread(namespace: Namespace, function: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        with namespace.entered():
            function()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


class ManyConnections(NamedTuple):
    """Deleted endpoints, and whether Python looks at the 100 000 connections to another one with the port of 1."""

    version: Version
    deleted: Collection[int]
    are_others_read: bool


MANY_CONNECTIONS = {
    "IPv4": ManyConnections(4, [1], are_others_read=False),
    "IPv4, many endpoints": ManyConnections(4, MANY, are_others_read=True),
    "IPv6": ManyConnections(6, [2], are_others_read=False),
    "IPv6, same port": ManyConnections(6, [1], are_others_read=True),
    "IPv6, many ports": ManyConnections(6, MANY, are_others_read=True),
}


@pytest.mark.parametrize("case", MANY_CONNECTIONS.values(), ids=MANY_CONNECTIONS.keys())
def test_syncs_continue_while_100_000_other_connections_exist(
    case: ManyConnections, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syncs begin and end in the middle of a dump, which another thread makes; they list no entries."""
    if int(namespace.read_sysctl("net.netfilter.nf_conntrack_max")) < 2 * OTHERS:
        pytest.fail("net.netfilter.nf_conntrack_max is too small on this host")
    drained, left = Drained(namespace), MANY.stop
    drained.sync(*drained_service(case.version, {*case.deleted, left}))
    connect_to_other_endpoint(case.version, OTHERS)
    connect_to_endpoints(case.version, case.deleted, 100)
    drained.sync(*drained_service(case.version, {left}))
    drained.clock.now += GRACE_SECONDS
    pass_paused, syncs_ended = threading.Event(), threading.Event()
    readers: list[threading.Thread] = []
    contain = LostConnections.contain

    def count(lost: Any, original_destination: bytes, reply_source: bytes, addresses: Any) -> bool:
        readers.append(threading.current_thread())
        pass_paused.set()
        assert syncs_ended.wait(TIMEOUT)
        return contain(lost, original_destination, reply_source, addresses)

    monkeypatch.setattr(LostConnections, "contain", count)
    thread = _run_in_thread(namespace, drained.drainer.run_due_passes)
    assert pass_paused.wait(TIMEOUT)
    for endpoint in (1, 2):
        drained.sync(*_web([endpoint], "keep", "other", 11))
    assert not drained.ended
    syncs_ended.set()
    thread.join(TIMEOUT)
    assert drained.ended == [100]
    # Each entry of the dump once, and those to delete once more.
    assert readers == [thread] * (2 * 100 + OTHERS * case.are_others_read)
    assert int(namespace.read_sysctl("net.netfilter.nf_conntrack_count")) == OTHERS


def test_thread_of_the_flow_cleaner_ends_connections(
    drained: Drained, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knft.sync.flow_cleaner.POLL_SECONDS", 0.01)
    add_entries(_entries(1))
    drained.sync(*_web([2]))
    cleaner = FlowCleaner(CONFIG, local_addresses, drainer=drained.drainer)
    stop = threading.Event()
    thread = _run_in_thread(namespace, lambda: cleaner.run(stop))
    time.sleep(0.1)  # Nothing ends before.
    assert drained.ended == []
    drained.clock.now += GRACE_SECONDS
    wait_until(lambda: drained.ended == [1], "the connection did not end")
    stop.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
