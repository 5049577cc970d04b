"""FlowCleaner: which of the kernel's entries it removes after which syncs, and what it asks for that (K.4)."""

import subprocess
import threading

import pytest
from msgspec import structs

from knft.kernel.addresses import local_addresses
from knft.model.names import Family
from tests.conntrack.entries import Entry, clients, make, present
from tests.conntrack.hearing import Hearing, counted
from tests.conntrack.objects import (
    BOTH,
    ENDPOINTS,
    FAMILIES,
    HANG,
    NETWORKS,
    NODE_PORT,
    OTHER_NETWORKS,
    VIPS,
    flows_of,
    is_stale,
    meddle,
    node_object,
    service,
    slice_of,
)
from tests.kernel.harness import CONFIG, KernelHarness
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import NODE, Version

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("version", BOTH)
def test_the_table_of_flows(
    hearing: Hearing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: Version
) -> None:
    """Gone are UDP's on the Service's own ports that lead to whoever does not serve; one deletion for each."""
    caplog.set_level("DEBUG", "knft")
    flows = flows_of(version)
    make(flows)
    assert len(present(version)) == 63 + 6
    requests = counted(monkeypatch)
    hearing.sync()
    stale = [entry for entry in flows if is_stale(version, entry)]
    assert hearing.reconcile() == len(stale) == 3 * 2 + 2 + 3
    assert present(version) == set(flows) - set(stale)
    assert (requests.listings, requests.deletions) == (2, len(stale))
    said = [line for line in caplog.messages if line.startswith(f"{FAMILIES[version].value}: 11 stale UDP flows forg")]
    assert len(said) == 1
    assert said[0].endswith(" ms")
    assert sorted(hearing.told, key=str) == sorted(
        [(family, len(stale) * (family is FAMILIES[version])) for family in Family], key=str
    )


@pytest.mark.parametrize("version", BOTH)
def test_a_service_without_endpoints_that_serve_keeps_none(hearing: Hearing, version: Version) -> None:
    """Where kube-proxy leaves them: whoever dials is refused from then on, and hears so."""
    flows = flows_of(version)
    make(flows)
    hearing._harness.apply(*(slice_of(each, serving=False) for each in BOTH))
    hearing.sync()
    hearing.reconcile()
    left = {entry for entry in flows if entry.protocol != "UDP" or entry.dialled[1] == 3000}
    assert present(version) == left


@pytest.mark.parametrize("version", BOTH)
def test_a_service_that_is_deleted_leaves_its_flows(hearing: Hearing, version: Version) -> None:
    """As with kube-proxy: nobody knows its frontends any more."""
    hearing.sync()
    hearing.reconcile()
    flows = flows_of(version)
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
    harness.apply(service(), node_object(), *(slice_of(each) for each in BOTH))
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
    harness.apply(service(), *(slice_of(each) for each in BOTH))
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
    item = service()
    item["spec"]["ports"] = [port for port in item["spec"]["ports"] if port["protocol"] != "UDP"]
    harness.apply(item, *(slice_of(version) for version in BOTH))
    hearing, requests = Hearing(harness), counted(monkeypatch)
    hearing.sync()
    hearing.reconcile()
    assert requests.listings == 0


def test_what_changes_nothing_about_udp_asks_for_nothing(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing.sync()
    hearing.reconcile()
    requests = counted(monkeypatch)
    other = service()
    other["metadata"]["name"] = "other"
    addresses = {"clusterIP": "10.96.0.99", "clusterIPs": ["10.96.0.99"], "ipFamilies": ["IPv4"]}
    other["spec"] |= {**addresses, "externalIPs": []}
    other["spec"]["ports"] = [{"port": 80}]
    other["status"] = {}
    hearing._harness.apply(other)
    hearing.sync()
    hearing.sync()
    assert hearing.reconcile() == requests.listings == 0


def test_flows_to_an_endpoint_of_a_sync_under_way_are_kept(hearing: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules are in force before the ledger knows of it; it is waited for, and then they are judged."""
    hearing.sync()
    hearing.reconcile()
    harness, client = hearing._harness, clients(4)
    new = Entry("UDP", next(client), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    old = Entry("UDP", next(client), (VIPS[4][0], 8000), ("10.244.2.13", 8080))
    make([new, old])
    item = slice_of(4)
    item["endpoints"].append({"addresses": ["10.244.2.77"]})
    harness.apply(item)
    hearing.cleaner.begun(Family.IPV4)
    proxier = harness.proxiers[Family.IPV4]
    report = proxier.sync()
    waiting = threading.Event()
    meddle(monkeypatch, waiting.set)
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

        meddle(patch, fail)
        assert hearing.reconcile() == 0
    assert present(4) == {flow}
    hearing.sync()
    assert hearing.reconcile() == 1


def test_a_flow_that_nobody_has_answered_yet_has_a_while(hearing: Hearing) -> None:
    """The answer to a call that is under way would be lost; whoever is answered has to dial somebody else at once."""
    now = [100.0]
    patient = Hearing(hearing._harness, grace=1.0, clock=lambda: now[0])
    stale = [entry for entry in flows_of(4) if is_stale(4, entry)]
    make(stale)
    answered = stale[0]
    (client, port), (dialled, dialled_port) = answered.client, answered.dialled
    named = f"-U -p udp -s {client} -d {dialled} --sport {port} --dport {dialled_port} -u SEEN_REPLY"
    subprocess.run(["conntrack", *named.split()], check=True, capture_output=True)  # noqa: S607
    patient.sync()
    assert patient.reconcile() == 1
    assert present(4) == set(stale) - {answered}
    now[0] += 0.5
    assert patient.reconcile() == 0
    now[0] += 0.5
    assert patient.reconcile() == len(stale) - 1
    assert present(4) == set()


def test_who_goes_on_dialling_where_nobody_is_has_flows_looked_at_once_more(
    hearing: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the node sends to its own NodePort is refused only after conntrack has seen it: a new flow each time."""
    now, requests = [100.0], counted(monkeypatch)
    patient = Hearing(hearing._harness, grace=1.0, clock=lambda: now[0])
    hearing._harness.apply(*(slice_of(each, serving=False) for each in BOTH))
    patient.sync()
    node, client = (NODE.lan.of(4), NODE_PORT), clients(4)
    for _ in range(10):
        make([Entry("UDP", next(client), node, node)])
        patient.reconcile()
        now[0] += 1
    # Both families, and IPv4 once more.
    assert requests.listings == 3
    hearing._harness.apply(slice_of(4))
    patient.sync()
    patient.reconcile()
    now[0] += 1
    patient.reconcile()
    assert present(4) == set()
