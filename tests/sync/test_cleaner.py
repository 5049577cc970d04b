"""FlowCleaner: which conntrack entries it deletes after which syncs, and with how many requests.

See docs/behaviour/upstream-tests.md#conntrack.
"""

import subprocess
import threading

import pytest
from msgspec import structs

from knft.families import Family
from knft.kernel.addresses import local_addresses
from tests.support.conntrack_entries import Entry, add_entries, client_endpoints, listed_entries
from tests.support.kernel_harness import CONFIG, KernelHarness
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import NODE, Version
from tests.sync.recording_cleaner import RecordingCleaner, count_netlink_requests
from tests.sync.udp_services import (
    ENDPOINTS,
    FAMILIES,
    NETWORKS,
    NODE_PORT,
    OTHER_NETWORKS,
    TIMEOUT,
    VERSIONS,
    VIPS,
    flows_of,
    is_stale,
    node_object,
    run_before_settling,
    service,
    slice_of,
)

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("version", VERSIONS)
def test_stale_udp_flows_are_deleted(
    recording_cleaner: RecordingCleaner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: Version,
) -> None:
    """Deletes UDP flows to the Service's frontends whose endpoint is not serving, with one request each."""
    caplog.set_level("DEBUG", "knft")
    flows = flows_of(version)
    add_entries(flows)
    assert len(listed_entries(version)) == 63 + 6
    requests = count_netlink_requests(monkeypatch)
    recording_cleaner.sync()
    stale = [entry for entry in flows if is_stale(version, entry)]
    assert recording_cleaner.run_passes() == len(stale) == 3 * 2 + 2 + 3
    assert listed_entries(version) == set(flows) - set(stale)
    assert (requests.dumps, requests.deletions) == (2, len(stale))
    start = f"{FAMILIES[version].value}: deleted 11 stale UDP conntrack entries in "
    lines = [line for line in caplog.messages if line.startswith(start)]
    assert len(lines) == 1
    assert lines[0].endswith(" ms")
    assert sorted(recording_cleaner.deletions, key=str) == sorted(
        [(family, len(stale) * (family is FAMILIES[version])) for family in Family], key=str
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_service_without_serving_endpoints_loses_all_udp_flows(
    recording_cleaner: RecordingCleaner, version: Version
) -> None:
    """Clients then get an error at once. kube-proxy keeps these flows."""
    flows = flows_of(version)
    add_entries(flows)
    recording_cleaner.harness.apply(*(slice_of(each, serving=False) for each in VERSIONS))
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    left = {entry for entry in flows if entry.protocol != "UDP" or entry.original_destination[1] == 3000}
    assert listed_entries(version) == left


@pytest.mark.parametrize("version", VERSIONS)
def test_flows_of_deleted_service_are_deleted(recording_cleaner: RecordingCleaner, version: Version) -> None:
    """As in kube-proxy 1.38: otherwise a client that keeps sending keeps its entry, and the endpoint."""
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    flows = flows_of(version)
    add_entries(flows)
    frontends = {entry.original_destination for entry in flows if is_stale(version, entry)}
    deleted = {
        entry
        for entry in flows
        if entry.protocol == "UDP"
        and entry.original_destination in frontends
        and entry.reply_source == (ENDPOINTS[version]["serving"], 8080)
    }
    recording_cleaner.harness.delete("Service", "all")
    recording_cleaner.sync()
    assert recording_cleaner.run_passes() == len(deleted) == 4
    assert listed_entries(version) == set(flows) - deleted


@pytest.mark.parametrize("nodeport_addresses", [("primary",), ("all",), NETWORKS, OTHER_NETWORKS])
@pytest.mark.parametrize("version", VERSIONS)
def test_flows_to_other_addresses_with_the_node_port_number_are_kept(
    namespace: Namespace, version: Version, nodeport_addresses: tuple[str, ...]
) -> None:
    """Such flows go to another host, or to a node address that does not accept NodePorts."""
    with netlink(namespace) as link:
        link.up("lo")
        link.add_loopback_addresses(NODE.lan)
    config = structs.replace(CONFIG, nodeport_addresses=nodeport_addresses)
    harness = KernelHarness(namespace, config)
    harness.dispatcher.update_local_addresses(local_addresses())
    harness.apply(service(), node_object(), *(slice_of(each) for each in VERSIONS))
    recording_cleaner, client = RecordingCleaner(harness, config), client_endpoints(version)
    node = (NODE.lan.of(version), NODE_PORT)
    other_host = ("198.51.100.7" if version == 4 else "2001:db8:7::7", NODE_PORT)
    loopback = ("127.0.0.1" if version == 4 else "::1", NODE_PORT)
    deleted = (ENDPOINTS[version]["deleted"], 8080)
    destinations_and_sources = [(to, source) for to in (node, other_host, loopback) for source in (to, deleted)]
    flows = [Entry("UDP", next(client), to, source) for to, source in destinations_and_sources]
    add_entries(flows)
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    assert listed_entries(version) == set(flows if nodeport_addresses == OTHER_NETWORKS else flows[2:])


def test_new_node_port_address_triggers_a_check(namespace: Namespace) -> None:
    """Clients may have sent packets to it before; the objects are unchanged."""
    config = structs.replace(CONFIG, nodeport_addresses=NETWORKS)
    harness = KernelHarness(namespace, config)
    harness.apply(service(), *(slice_of(each) for each in VERSIONS))
    recording_cleaner = RecordingCleaner(harness, config)
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    node = (NODE.lan.ipv4, NODE_PORT)
    add_entries([Entry("UDP", next(client_endpoints(4)), node, node)])
    recording_cleaner.sync()
    assert recording_cleaner.run_passes() == 0
    harness.dispatcher.update_local_addresses(frozenset({NODE.lan.ipv4}))
    recording_cleaner.sync()
    assert recording_cleaner.run_passes() == 1


def test_no_dump_without_udp_services(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = KernelHarness(namespace)
    item = service()
    item["spec"]["ports"] = [port for port in item["spec"]["ports"] if port["protocol"] != "UDP"]
    harness.apply(item, *(slice_of(version) for version in VERSIONS))
    recording_cleaner, requests = RecordingCleaner(harness), count_netlink_requests(monkeypatch)
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    assert requests.dumps == 0


def test_no_dump_after_changes_of_tcp_services(
    recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    requests = count_netlink_requests(monkeypatch)
    other = service()
    other["metadata"]["name"] = "other"
    addresses = {"clusterIP": "10.96.0.99", "clusterIPs": ["10.96.0.99"], "ipFamilies": ["IPv4"]}
    other["spec"] |= {**addresses, "externalIPs": []}
    other["spec"]["ports"] = [{"port": 80}]
    other["status"] = {}
    recording_cleaner.harness.apply(other)
    recording_cleaner.sync()
    recording_cleaner.sync()
    assert recording_cleaner.run_passes() == requests.dumps == 0


def test_flows_to_endpoint_of_running_sync_are_kept(
    recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules of a new endpoint are committed before the cleaner knows the endpoint, so it waits for the sync."""
    recording_cleaner.sync()
    recording_cleaner.run_passes()
    harness, client = recording_cleaner.harness, client_endpoints(4)
    new = Entry("UDP", next(client), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    old = Entry("UDP", next(client), (VIPS[4][0], 8000), ("10.244.2.13", 8080))
    add_entries([new, old])
    item = slice_of(4)
    item["endpoints"].append({"addresses": ["10.244.2.77"]})
    harness.apply(item)
    recording_cleaner.cleaner.sync_started(Family.IPV4)
    proxier = harness.proxiers[Family.IPV4]
    report = proxier.sync()
    waiting = threading.Event()
    run_before_settling(monkeypatch, waiting.set)
    deletions: list[int] = []

    def run_pass() -> None:
        with harness.namespace.entered():
            deletions.append(recording_cleaner.cleaner.run_pass(Family.IPV4))

    thread = threading.Thread(target=run_pass)
    thread.start()
    assert waiting.wait(TIMEOUT)
    assert listed_entries(4) == {new, old}
    recording_cleaner.cleaner.sync_succeeded(report, proxier.state)
    thread.join(TIMEOUT)
    assert deletions == [1]
    assert listed_entries(4) == {new}


@pytest.mark.parametrize("is_left", [False, True])
def test_no_deletion_between_failed_and_successful_sync(recording_cleaner: RecordingCleaner, *, is_left: bool) -> None:
    """A failed sync may have changed some rules, so the valid endpoints are unknown; so may an older version."""
    flow = Entry("UDP", next(client_endpoints(4)), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    add_entries([flow])
    recording_cleaner.sync()
    if is_left:
        recording_cleaner.cleaner.table_left(Family.IPV4)
    else:
        recording_cleaner.cleaner.sync_started(Family.IPV4)
        recording_cleaner.cleaner.sync_failed(Family.IPV4, 0.1, "refused")
    assert recording_cleaner.cleaner.run_pass(Family.IPV4) == 0
    assert recording_cleaner.run_passes() == 0
    assert listed_entries(4) == {flow}
    recording_cleaner.sync()
    assert recording_cleaner.run_passes() == 1
    assert listed_entries(4) == set()


def test_sync_failure_during_check_postpones_deletion(
    recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Entry("UDP", next(client_endpoints(4)), (VIPS[4][0], 8000), ("10.244.2.77", 8080))
    add_entries([flow])
    recording_cleaner.sync()
    with monkeypatch.context() as patch:

        def fail() -> None:
            recording_cleaner.cleaner.sync_started(Family.IPV4)
            recording_cleaner.cleaner.sync_failed(Family.IPV4, 0.1, "refused")

        run_before_settling(patch, fail)
        assert recording_cleaner.run_passes() == 0
    assert listed_entries(4) == {flow}
    recording_cleaner.sync()
    assert recording_cleaner.run_passes() == 1


def test_unreplied_flow_is_deleted_after_grace_period(recording_cleaner: RecordingCleaner) -> None:
    """Deleting it at once would lose a reply in flight; a flow with replies is deleted at once."""
    now = [100.0]
    delayed_cleaner = RecordingCleaner(recording_cleaner.harness, grace=1.0, clock=lambda: now[0])
    stale = [entry for entry in flows_of(4) if is_stale(4, entry)]
    add_entries(stale)
    replied_flow = stale[0]
    (client, port), (destination, destination_port) = replied_flow.client, replied_flow.original_destination
    arguments = f"-U -p udp -s {client} -d {destination} --sport {port} --dport {destination_port} -u SEEN_REPLY"
    subprocess.run(["conntrack", *arguments.split()], check=True, capture_output=True)  # noqa: S607
    delayed_cleaner.sync()
    assert delayed_cleaner.run_passes() == 1
    assert listed_entries(4) == set(stale) - {replied_flow}
    now[0] += 0.5
    assert delayed_cleaner.run_passes() == 0
    now[0] += 0.5
    assert delayed_cleaner.run_passes() == len(stale) - 1
    assert listed_entries(4) == set()


def test_new_unreplied_flows_cause_a_single_further_check(
    recording_cleaner: RecordingCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets from the node to its own NodePort are rejected after conntrack: each creates a new flow."""
    now, requests = [100.0], count_netlink_requests(monkeypatch)
    delayed_cleaner = RecordingCleaner(recording_cleaner.harness, grace=1.0, clock=lambda: now[0])
    recording_cleaner.harness.apply(*(slice_of(each, serving=False) for each in VERSIONS))
    delayed_cleaner.sync()
    node, client = (NODE.lan.of(4), NODE_PORT), client_endpoints(4)
    for _ in range(10):
        add_entries([Entry("UDP", next(client), node, node)])
        delayed_cleaner.run_passes()
        now[0] += 1
    # One dump of each family, and a second one of IPv4.
    assert requests.dumps == 3
    recording_cleaner.harness.apply(slice_of(4))
    delayed_cleaner.sync()
    delayed_cleaner.run_passes()
    now[0] += 1
    delayed_cleaner.run_passes()
    assert listed_entries(4) == set()
