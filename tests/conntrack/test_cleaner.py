"""FlowCleaner: which of the kernel's entries it removes after which syncs, and what it asks for that (K.4)."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.kernel.addresses import local_addresses
from knft.kernel.conntrack import FlowTable, Forgotten, Listing
from knft.model.names import Family
from knft.sync import conntrack
from knft.sync.conntrack import FlowCleaner
from tests.conntrack.entries import Entry, clients, make, make_many, present
from tests.conntrack.hearing import Counted, Hearing, counted
from tests.kernel.harness import CONFIG, KernelHarness
from tests.lab.links import netlink
from tests.lab.namespace import Namespace
from tests.lab.plan import NODE, Version

pytestmark = pytest.mark.kernel
HANG = 30.0
BOTH: tuple[Version, ...] = (4, 6)
VIPS = {
    4: ("10.96.0.10", "203.0.113.1", "203.0.113.2"),
    6: ("fd00:10:96::10", "2001:db8:cb::1", "2001:db8:cb::2"),
}
ENDPOINTS = {
    4: {"serving": "10.244.2.11", "not serving": "10.244.2.12", "deleted": "10.244.2.13"},
    6: {"serving": "fd00:10:244:2::11", "not serving": "fd00:10:244:2::12", "deleted": "fd00:10:244:2::13"},
}
FAMILIES: dict[Version, Family] = {4: Family.IPV4, 6: Family.IPV6}
PROTOCOLS = ("TCP", "UDP", "SCTP")
NODE_PORT = 32000
NETWORKS, OTHER_NETWORKS = ("192.0.2.0/24", "2001:db8:1::/64"), ("198.51.100.0/24", "2001:db8:9::/64")


@pytest.fixture
def hearing(namespace: Namespace) -> Hearing:
    """A node with its addresses, and one Service in all protocols; nobody was told yet."""
    with netlink(namespace) as link:
        link.up("lo")
        link.add_own_addresses(NODE.lan)
    harness = KernelHarness(namespace)
    harness.apply(_service(), _node(), *(_slice(version) for version in BOTH))
    return Hearing(harness)


def _node() -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": NODE.lan.of(version)} for version in BOTH]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}}


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "all"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": VIPS[4][0],
            "clusterIPs": [VIPS[4][0], VIPS[6][0]],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalIPs": [VIPS[4][1], VIPS[6][1]],
            "ports": [
                {
                    "name": name.lower(),
                    "port": 8000,
                    "protocol": name,
                    **({"nodePort": NODE_PORT} if name == "UDP" else {}),
                }
                for name in PROTOCOLS
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": VIPS[4][2]}, {"ip": VIPS[6][2]}]}},
    }


def _slice(version: Version, *, serving: bool = True) -> dict[str, Any]:
    found = ENDPOINTS[version]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"all-{version}", "labels": {"kubernetes.io/service-name": "all"}},
        "addressType": FAMILIES[version].value,
        "ports": [{"name": name.lower(), "port": 8080, "protocol": name} for name in PROTOCOLS],
        "endpoints": [
            {"addresses": [found["serving"]], "conditions": {"ready": serving, "serving": serving}},
            {"addresses": [found["not serving"]], "conditions": {"ready": False, "serving": False}},
        ],
    }


def _flows(version: Version) -> list[Entry]:
    """Return K.4's 63 flows to endpoints, and 6 that were never translated."""
    client, node = clients(version), NODE.lan.of(version)
    dialled = [(vip, port) for vip in VIPS[version] for port in (8000, 3000)]
    translated = [
        Entry(protocol, next(client), to, (endpoint, 8080))
        for protocol, to, endpoint in itertools.product(
            PROTOCOLS, [*dialled, (node, NODE_PORT)], ENDPOINTS[version].values()
        )
    ]
    return [*translated, *(Entry("UDP", next(client), to, to) for to in dialled)]


def _is_stale(version: Version, entry: Entry) -> bool:
    ours = entry.dialled[1] == 8000 or entry.dialled == (NODE.lan.of(version), NODE_PORT)
    return entry.protocol == "UDP" and ours and entry.answering != (ENDPOINTS[version]["serving"], 8080)


@pytest.mark.parametrize("version", BOTH)
def test_the_table_of_flows(hearing: Hearing, monkeypatch: pytest.MonkeyPatch, version: Version) -> None:
    """Gone are UDP's on the Service's own ports that lead to whoever does not serve; one deletion for each."""
    flows = _flows(version)
    make(flows)
    assert len(present(version)) == 63 + 6
    requests = counted(monkeypatch)
    hearing.sync()
    stale = [entry for entry in flows if _is_stale(version, entry)]
    assert hearing.reconcile() == len(stale) == 3 * 2 + 2 + 3
    assert present(version) == set(flows) - set(stale)
    assert (requests.listings, requests.deletions) == (2, len(stale))
    assert sorted(hearing.told, key=str) == sorted(
        [(family, len(stale) * (family is FAMILIES[version])) for family in Family], key=str
    )


@pytest.mark.parametrize("version", BOTH)
def test_a_service_without_endpoints_that_serve_keeps_none(hearing: Hearing, version: Version) -> None:
    """Where kube-proxy leaves them: whoever dials is refused from then on, and hears so."""
    flows = _flows(version)
    make(flows)
    hearing._harness.apply(*(_slice(each, serving=False) for each in BOTH))
    hearing.sync()
    hearing.reconcile()
    left = {entry for entry in flows if entry.protocol != "UDP" or entry.dialled[1] == 3000}
    assert present(version) == left


@pytest.mark.parametrize("version", BOTH)
def test_a_service_that_is_deleted_leaves_its_flows(hearing: Hearing, version: Version) -> None:
    """As with kube-proxy: nobody knows its frontends any more."""
    hearing.sync()
    hearing.reconcile()
    flows = _flows(version)
    make(flows)
    hearing._harness.delete("Service", "all")
    hearing.sync()
    assert hearing.reconcile() == 0
    assert present(version) == set(flows)


@pytest.mark.parametrize("words", [("primary",), ("all",), NETWORKS, OTHER_NETWORKS])
@pytest.mark.parametrize("version", BOTH)
def test_flows_to_a_node_ports_number_elsewhere_are_strangers(
    namespace: Namespace, version: Version, words: tuple[str, ...]
) -> None:
    """Through the node to another host, or to an address of the node's own that accepts no NodePorts."""
    with netlink(namespace) as link:
        link.up("lo")
        link.add_own_addresses(NODE.lan)
    config = structs.replace(CONFIG, nodeport_addresses=words)
    harness = KernelHarness(namespace, config)
    harness.dispatcher.note_addresses(local_addresses())
    harness.apply(_service(), _node(), *(_slice(each) for each in BOTH))
    hearing, client = Hearing(harness, config), clients(version)
    node = (NODE.lan.of(version), NODE_PORT)
    stranger = ("198.51.100.7" if version == 4 else "2001:db8:7::7", NODE_PORT)
    loopback = ("127.0.0.1" if version == 4 else "::1", NODE_PORT)
    deleted = (ENDPOINTS[version]["deleted"], 8080)
    ends = [(to, answering) for to in (node, stranger, loopback) for answering in (to, deleted)]
    flows = [Entry("UDP", next(client), to, answering) for to, answering in ends]
    make(flows)
    hearing.sync()
    hearing.reconcile()
    assert present(version) == set(flows if words == OTHER_NETWORKS else flows[2:])


def test_an_address_that_begins_to_accept_node_ports_is_looked_at(namespace: Namespace) -> None:
    """Clients may have dialled it before, and went nowhere; the objects are as they were."""
    config = structs.replace(CONFIG, nodeport_addresses=NETWORKS)
    harness = KernelHarness(namespace, config)
    harness.apply(_service(), *(_slice(each) for each in BOTH))
    hearing = Hearing(harness, config)
    hearing.sync()
    hearing.reconcile()
    node = (NODE.lan.ipv4, NODE_PORT)
    make([Entry("UDP", next(clients(4)), node, node)])
    hearing.sync()
    assert hearing.reconcile() == 0
    harness.dispatcher.note_addresses(frozenset({NODE.lan.ipv4}))
    hearing.sync()
    assert hearing.reconcile() == 1


def test_without_udp_services_the_kernel_is_not_asked(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = KernelHarness(namespace)
    item = _service()
    item["spec"]["ports"] = [port for port in item["spec"]["ports"] if port["protocol"] != "UDP"]
    harness.apply(item, *(_slice(version) for version in BOTH))
    hearing, requests = Hearing(harness), counted(monkeypatch)
    hearing.sync()
    hearing.reconcile()
    assert requests.listings == 0


def test_what_changes_nothing_about_udp_asks_for_nothing(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing.sync()
    hearing.reconcile()
    requests = counted(monkeypatch)
    other = _service()
    other["metadata"]["name"] = "other"
    addresses = {"clusterIP": "10.96.0.99", "clusterIPs": ["10.96.0.99"], "ipFamilies": ["IPv4"]}
    other["spec"] |= {**addresses, "externalIPs": []}
    other["spec"]["ports"] = [{"port": 80}]
    other["status"] = {}
    hearing._harness.apply(other)
    hearing.sync()
    hearing.sync()
    assert hearing.reconcile() == requests.listings == 0


def _meddled(monkeypatch: pytest.MonkeyPatch, between: Any) -> None:
    """Have something happen after flows were listed, and before it is settled which are forgotten."""
    settled = conntrack.FlowCleaner._is_settled

    def first(cleaner: conntrack.FlowCleaner, heard: conntrack._Heard) -> bool:
        between()
        return settled(cleaner, heard)

    monkeypatch.setattr(conntrack.FlowCleaner, "_is_settled", first)


def test_flows_to_an_endpoint_of_a_sync_under_way_are_kept(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules are in force before the ledger knows of it; it is waited for, and then they are judged."""
    hearing.sync()
    hearing.reconcile()
    harness, client = hearing._harness, clients(4)
    new = Entry("UDP", next(client), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    old = Entry("UDP", next(client), (VIPS[4][0], 8000), ("10.244.2.13", 8080))
    make([new, old])
    item = _slice(4)
    item["endpoints"].append({"addresses": ["10.244.2.77"]})
    harness.apply(item)
    hearing.cleaner.begun(Family.IPV4)
    proxier = harness.proxiers[Family.IPV4]
    report = proxier.sync()
    waiting = threading.Event()
    _meddled(monkeypatch, waiting.set)
    found: list[int] = []

    def reconcile() -> None:
        with harness.namespace.entered():
            found.append(hearing.cleaner.reconcile(Family.IPV4))

    thread = threading.Thread(target=reconcile)
    thread.start()
    assert waiting.wait(HANG)
    assert present(4) == {new, old}
    hearing.cleaner.synced(report, proxier.state)
    thread.join(HANG)
    assert found == [1]
    assert present(4) == {new}


def test_where_a_sync_fails_nothing_is_forgotten_before_one_succeeds(hearing: Hearing) -> None:
    """Part of it may be in force: nobody knows whom a flow may lead to."""
    flow = Entry("UDP", next(clients(4)), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    make([flow])
    hearing.sync()
    hearing.cleaner.begun(Family.IPV4)
    hearing.cleaner.failed(Family.IPV4, 0.1)
    assert hearing.cleaner.reconcile(Family.IPV4) == 0
    assert hearing.reconcile() == 0
    assert present(4) == {flow}
    hearing.sync()
    assert hearing.reconcile() == 1
    assert present(4) == set()


def test_a_sync_that_fails_in_between_puts_it_off(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Entry("UDP", next(clients(4)), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    make([flow])
    hearing.sync()
    with monkeypatch.context() as patch:

        def fail() -> None:
            hearing.cleaner.begun(Family.IPV4)
            hearing.cleaner.failed(Family.IPV4, 0.1)

        _meddled(patch, fail)
        assert hearing.reconcile() == 0
    assert present(4) == {flow}
    hearing.sync()
    assert hearing.reconcile() == 1


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
    flows = _flows(4)
    make(flows)
    running.sync()
    _until(2, running)
    assert present(4) == {entry for entry in flows if not _is_stale(4, entry)}
    running._harness.apply(_slice(4, serving=False))
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
    flows = _flows(4)
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
    assert present(4) == {entry for entry in flows if not _is_stale(4, entry)}


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
    flows = _flows(4)
    make(flows)
    hearing.sync()
    with monkeypatch.context() as patch:
        patch.setattr(*TROUBLES[name])
        for family in hearing.cleaner._take_due():
            hearing.cleaner._reconcile_and_say(family)
    left = {entry for entry in flows if not _is_stale(4, entry)}
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
    make(_flows(4))
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
        hearing._harness.apply(_slice(4, serving=False))
        hearing.sync()
        assert go_on(300) == [200, 260]
    assert go_on(400) == [320]
    hearing._harness.apply(_slice(4))
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
    make(_flows(4))
    hearing.sync()
    hearing.cleaner.begun(Family.IPV4)
    waiting = threading.Event()
    _meddled(monkeypatch, waiting.set)
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
            self._hearing._harness.apply(_slice(6, serving=serving))
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
