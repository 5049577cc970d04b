"""TCP clients of Services with ``knft.dev/drain: reset``: their connections to a deleted endpoint end with a reset.

The clients are a pod, the node itself and a host outside, at each kind of frontend (docs/behaviour/draining.md).
"""

import itertools
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec import structs

from knft.config import Config
from knft.explain.sentences import Sentence
from knft.families import Family
from knft.kernel.addresses import local_addresses
from knft.sync.connection_drainer import ConnectionDrainer
from tests.packets.segments import ServiceConnection
from tests.support.conntrack_entries import Entry, add_entries, listed_entries
from tests.support.explain_sources import explained, of_objects
from tests.support.families import addresses
from tests.support.http_client import http_request
from tests.support.kernel_harness import CONFIG
from tests.support.knft_command import knft, write_manifests
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack
from tests.support.lab.outcomes import Answered, Outcome, Rejected, Silent
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import OpenConnection, dial
from tests.support.packets.manifest_knft import ManifestKnft
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, with_load_balancer
from tests.support.scenario import VERSIONS, Scenario
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.kernel
PORT, SERVICE_PORT, NODE_PORT = 8080, 80, 30300
PODS = ("local-1", "local-2", "remote-1")
CLIENTS = ("local-3", "node", "outside")
FRONTENDS = {
    "cluster IP": (addresses("cluster.30"), SERVICE_PORT),
    "NodePort": (plan.NODE.lan, NODE_PORT),
    "external IP": (addresses("external.130"), SERVICE_PORT),
    "load balancer": (addresses("external.131"), SERVICE_PORT),
}
OWN_PORT = 8090
SILENCE_SECONDS = 0.5
"""How long to wait where no packet is expected."""
LOOSE = "net.netfilter.nf_conntrack_tcp_loose"
OTHER = (addresses("cluster.31"), SERVICE_PORT)
METRICS_ADDRESS, METRICS_PORT = "127.0.0.1", 10249
PROTOCOLS = {"http": "TCP", "dns": "UDP", "ctl": "SCTP"}
"""The protocols of the ports of a Service by their names."""
each_family = pytest.mark.parametrize("version", VERSIONS)


class DrainedNode(ProgrammedNode):
    """The node; connections are ended after every sync, as in ``knft run`` some seconds later."""

    def __init__(self, lab: Lab, config: Config = CONFIG) -> None:
        super().__init__(lab, config)
        self.ended = 0
        self.new_drainer()

    def new_drainer(self) -> None:
        """Forget which endpoints there were."""
        self.drainer = ConnectionDrainer(self._config, local_addresses, self._count, grace=0.0)

    def _count(self, _: Family, count: int) -> None:
        self.ended += count

    def apply(self, objects: Any) -> Any:
        for family in Family:
            self.drainer.sync_started(family)
        reports = super().apply(objects)
        for family, report in reports.items():
            self.drainer.sync_succeeded(report, self._harness.proxiers[family].state)
        with self.namespace.entered():
            self.drainer.run_due_passes()
        return reports


@pytest.fixture
def node(lab: Lab) -> Iterator[DrainedNode]:
    with _serving(lab, CONFIG) as drained:
        yield drained


@contextmanager
def _serving(lab: Lab, config: Config) -> Iterator[DrainedNode]:
    """The node, with servers on three pods."""
    with Responders() as servers, DrainedNode(lab, config) as drained:
        for host in PODS:
            for port in (PORT, PORT + 1):
                servers.serve(lab.host(host), port)
        yield drained


def _dial_all(
    node: DrainedNode, version: plan.Version, client: str, frontends: Mapping[str, Any], timeout: float = TIMEOUT
) -> set[Outcome]:
    """Return the outcomes of new connections."""
    host = node.lab.host(client)
    return {dial(host, address.of(version), port, timeout=timeout) for address, port in frontends.values()}


def _service(drain: str | None = "reset", **spec: Any) -> dict[str, Any]:
    port = {"name": "http", "port": SERVICE_PORT, "nodePort": NODE_PORT}
    item = with_load_balancer(service("web", 30, port, externalIPs=["$external.130"], **spec), "$external.131")
    return _annotated(item, drain)


def _other(drain: str | None = None) -> dict[str, Any]:
    return _annotated(service("other", 31, {"name": "http", "port": SERVICE_PORT}), drain)


def _annotated(item: dict[str, Any], drain: str | None) -> dict[str, Any]:
    annotations = {} if drain is None else {"knft.dev/drain": drain}
    return item | {"metadata": item["metadata"] | {"annotations": annotations}}


def _endpoints(*pods: str, name: str = "web", port: int = PORT, **conditions: bool) -> dict[str, Any]:
    item = endpoints(name, *pods)
    item["ports"] = [{"name": "http", "port": port}]
    for endpoint in item["endpoints"]:
        endpoint["conditions"] = conditions
    return item


class Connections:
    """Open connections, by client and frontend."""

    def __init__(
        self,
        node: DrainedNode,
        version: plan.Version,
        frontends: Mapping[str, Any] = FRONTENDS,
        clients: Sequence[str] = CLIENTS,
    ) -> None:
        self._opened = ExitStack()
        self.connections = {
            (client, name): self._opened.enter_context(
                OpenConnection(node.lab.host(client), frontend.of(version), port)
            )
            for (name, (frontend, port)), client in itertools.product(frontends.items(), clients)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def servers(self) -> set[str]:
        """Return the servers that answered."""
        return {connection.server for connection in self.connections.values()}

    def outcomes(self) -> set[str]:
        """Send something in each connection, and return what comes back."""
        return {connection.send(b"still there?") for connection in self.connections.values()}


def _connected(node: DrainedNode, version: plan.Version, objects: Sequence[dict[str, Any]]) -> Connections:
    node.apply(objects)
    return Connections(node, version)


@each_family
@pytest.mark.parametrize(
    ("first", "second"), [("local-1", "local-2"), ("remote-1", "local-1"), ("local-1", "remote-1")]
)
def test_connections_to_a_deleted_endpoint_are_reset(
    node: DrainedNode, version: plan.Version, first: str, second: str
) -> None:
    """They end for clients of every frontend, once they send something."""
    with _connected(node, version, [_service(), _endpoints(first)]) as opened:
        assert opened.servers() == {first}
        node.apply([_endpoints(first, second)])
        assert opened.outcomes() == {"echo"}
        node.apply([_endpoints(second)])
        assert node.ended == len(opened.connections)
        assert opened.outcomes() == {"reset"}


@each_family
@pytest.mark.parametrize(("name", "frontend"), [("web", FRONTENDS["cluster IP"]), ("other", OTHER)])
def test_explanation_says_whether_connections_are_reset(
    node: DrainedNode, version: plan.Version, name: str, frontend: Any
) -> None:
    node.apply([_service(), _other(), _endpoints("local-1", "local-2"), _endpoints("local-1", "local-2", name="other")])
    with Connections(node, version, {"cluster IP": frontend}) as opened:
        notes = [note.kind for port in explained(name, of_objects(*node.objects)).ports for note in port.notes]
        node.apply([_endpoints("remote-1", name=name)])
        assert opened.outcomes() == {"reset" if Sentence.RESETS_CONNECTIONS.kind in notes else "echo"}
    assert (name == "web") is (Sentence.RESETS_CONNECTIONS.kind in notes)


@each_family
@pytest.mark.parametrize("counters", [False, True], ids=["", "counters"])
def test_connections_are_reset_if_no_endpoint_is_left(lab: Lab, version: plan.Version, *, counters: bool) -> None:
    """Clients that connect are rejected as those of other Services, and counted with ``--service-counters``."""
    with _serving(lab, structs.replace(CONFIG, service_counters=counters)) as node:
        with _connected(node, version, [_service(), _endpoints("local-1")]) as opened:
            node.apply([_endpoints()])
            assert opened.outcomes() == {"reset"}
        assert _dial_all(node, version, "outside", FRONTENDS) == {Rejected("icmp")}
        node.apply([_endpoints("local-2")])
        assert {
            each.server for each in _dial_all(node, version, "outside", FRONTENDS) if isinstance(each, Answered)
        } == {"local-2"}


@each_family
@pytest.mark.parametrize("counters", [False, True], ids=["", "counters"])
def test_connections_are_reset_if_policy_local_drops(lab: Lab, version: plan.Version, *, counters: bool) -> None:
    """Clients that connect to a node without an endpoint get no answer, as at other Services."""
    external = {name: frontend for name, frontend in FRONTENDS.items() if name != "cluster IP"}
    with _serving(lab, structs.replace(CONFIG, service_counters=counters)) as node:
        node.apply([_service(externalTrafficPolicy="Local"), _endpoints("local-1", "remote-1")])
        with Connections(node, version, external, clients=("outside",)) as opened:
            assert opened.servers() == {"local-1"}
            node.apply([_endpoints("remote-1")])
            assert opened.outcomes() == {"reset"}
        assert _dial_all(node, version, "outside", external, timeout=0.5) == {Silent()}


@each_family
def test_connections_of_a_service_that_keeps_them_continue(node: DrainedNode, version: plan.Version) -> None:
    for drain in (None, "keep"):
        with _connected(node, version, [_service(drain), _endpoints("local-1")]) as opened:
            node.apply([_endpoints("local-2")])
            assert opened.outcomes() == {"echo"}
            node.apply([_endpoints()])
            assert opened.outcomes() == {"echo"}
    assert node.ended == 0


@each_family
def test_connections_to_an_endpoint_that_policies_exclude_continue(node: DrainedNode, version: plan.Version) -> None:
    """With policy Local, new connections reach the endpoint on this node only; the other one still exists."""
    with _connected(node, version, [_service(), _endpoints("remote-1")]) as opened:
        assert opened.servers() == {"remote-1"}
        local = _service(internalTrafficPolicy="Local", externalTrafficPolicy="Local")
        node.apply([local, _endpoints("local-1", "remote-1")])
        assert opened.outcomes() == {"echo"}
    assert node.ended == 0


HARMLESS_CHANGES: dict[str, list[dict[str, Any]]] = {
    "the endpoint terminates": [_endpoints("local-1", ready=False, serving=True, terminating=True)],
    "the endpoint terminates and no longer serves": [
        _endpoints("local-1", ready=False, serving=False, terminating=True)
    ],
    "the endpoint is not ready": [_endpoints("local-1", ready=False, serving=False)],
    "the endpoint is in another slice": [
        _endpoints(),
        {**_endpoints("local-1"), "metadata": {"name": "web-2", "labels": {"kubernetes.io/service-name": "web"}}},
    ],
    "an external address is removed": [
        _annotated(service("web", 30, {"name": "http", "port": SERVICE_PORT}), "reset"),
    ],
    "the annotation is removed with the endpoint": [_service(None), _endpoints("local-2")],
    "the endpoint of another Service is deleted": [_other("reset"), _endpoints(name="other")],
}


@each_family
@pytest.mark.parametrize("changes", HARMLESS_CHANGES.values(), ids=HARMLESS_CHANGES.keys())
def test_connections_continue_after_other_changes(
    node: DrainedNode, version: plan.Version, changes: list[dict[str, Any]]
) -> None:
    node.apply([_other("reset"), _endpoints("local-1", name="other")])
    with _connected(node, version, [_service(), _endpoints("local-1")]) as opened:
        node.apply(changes)
        assert node.ended == 0
        assert opened.outcomes() == {"echo"}


@each_family
def test_only_connections_of_the_annotated_service_end(node: DrainedNode, version: plan.Version) -> None:
    """Two Services have the same endpoint; a client also connects to the pod directly."""
    node.apply([_other(), _endpoints("local-1", name="other")])
    direct = OpenConnection(node.lab.host("local-3"), node.lab.host("local-1").address(version), PORT)
    with (
        _connected(node, version, [_service(), _endpoints("local-1")]) as opened,
        Connections(node, version, {"other": OTHER}) as others,
        direct,
    ):
        node.apply([_endpoints("local-2"), _endpoints("local-2", name="other")])
        assert opened.outcomes() == {"reset"}
        assert others.outcomes() == {"echo"}
        assert direct.echoes(b"still there?")


@each_family
def test_connections_end_when_the_target_port_changes(node: DrainedNode, version: plan.Version) -> None:
    """An endpoint is an address with a port."""
    with _connected(node, version, [_service(), _endpoints("local-1")]) as opened:
        node.apply([_endpoints("local-1", port=PORT + 1)])
        assert opened.outcomes() == {"reset"}


@each_family
def test_connection_of_an_endpoint_to_itself_ends(node: DrainedNode, version: plan.Version) -> None:
    """Its source address is masqueraded."""
    node.apply([_service(), _endpoints("local-1")])
    frontend = FRONTENDS["cluster IP"][0].of(version)
    with OpenConnection(node.lab.host("local-1"), frontend, SERVICE_PORT) as connection:
        assert connection.server == "local-1"
        node.apply([_endpoints("local-2")])
        assert connection.send(b"still there?") == "reset"


@each_family
def test_connections_stay_if_knft_did_not_know_the_endpoint(node: DrainedNode, version: plan.Version) -> None:
    """As if the endpoint was deleted while knft did not run."""
    with _connected(node, version, [_service(), _endpoints("local-1")]) as opened:
        node.new_drainer()
        node.apply([_endpoints("local-2")])
        assert opened.outcomes() == {"echo"}


@each_family
def test_connections_stay_if_the_service_is_deleted(node: DrainedNode, version: plan.Version) -> None:
    with _connected(node, version, [_service(), _endpoints("local-1")]) as opened:
        node._harness.delete("Service", "web")
        node._harness.delete("EndpointSlice", "web")
        node.apply([])
        assert opened.outcomes() == {"echo"}
        assert node.ended == 0


@pytest.fixture
def connection(node: DrainedNode, version: plan.Version) -> Iterator[ServiceConnection]:
    """A connection of a pod to an endpoint on the other node."""
    node.apply([_service(), _endpoints("remote-1", port=OWN_PORT)])
    with ServiceConnection(node.lab.host("local-3"), node.lab.host("remote-1"), OWN_PORT, version) as opened:
        opened.connect(FRONTENDS["cluster IP"][0].of(version), SERVICE_PORT)
        opened.client.settimeout(SILENCE_SECONDS)
        yield opened


@each_family
def test_client_sees_nothing_until_it_sends(node: DrainedNode, connection: ServiceConnection) -> None:
    node.apply([_endpoints("local-1", port=OWN_PORT)])
    assert node.ended == 1
    with pytest.raises(TimeoutError):
        connection.client.recv(1)
    connection.client.sendall(b"still there?")
    connection.client.settimeout(TIMEOUT)
    with pytest.raises(ConnectionResetError):
        connection.client.recv(1)


@each_family
def test_endpoint_that_still_lives_is_reset_when_it_sends(node: DrainedNode, connection: ServiceConnection) -> None:
    node.apply([_endpoints("local-1", port=OWN_PORT)])
    connection.send_from_endpoint(b"still there?")
    connection.wait_for_reset()


@each_family
def test_client_that_closes_gets_no_answer(node: DrainedNode, connection: ServiceConnection) -> None:
    """To conntrack, a FIN does not begin a connection."""
    node.apply([_endpoints("local-1", port=OWN_PORT)])
    connection.client.shutdown(socket.SHUT_WR)
    with pytest.raises(TimeoutError):
        connection.client.recv(1)


@each_family
def test_client_gets_no_answer_if_conntrack_is_strict(node: DrainedNode, connection: ServiceConnection) -> None:
    node.namespace.sysctl(LOOSE, 0)
    try:
        node.apply([_endpoints("local-1", port=OWN_PORT)])
        connection.client.sendall(b"still there?")
        with pytest.raises(TimeoutError):
            connection.client.recv(1)
    finally:
        node.namespace.sysctl(LOOSE, 1)


class DrainingRun:
    """``knft run`` on the node; the objects are in a file of manifests."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.namespace, self._folder = lab, lab.host("node").namespace, folder
        self._manifests = folder / "manifests"
        self._manifests.mkdir()

    @contextmanager
    def running(self, *objects: dict[str, Any]) -> Iterator[ManifestKnft]:
        """Start knft with these objects; at the end of the block, kill it and remove the tables."""
        flush_conntrack(self.namespace)
        self.write(*objects)
        flags = ("--metrics-bind-address", f"{METRICS_ADDRESS}:{METRICS_PORT}")
        process = ManifestKnft(self.namespace, self._manifests, self._folder / "log", flags=flags)
        try:
            process.wait_for_full_syncs()
            yield process
        finally:
            process.kill()
            knft(self.namespace, "cleanup")

    def write(self, *objects: dict[str, Any]) -> None:
        write_manifests(self._folder, Scenario("", list(objects), ()).manifests())
        (self._folder / "objects.yaml").rename(self._manifests / "objects.yaml")

    def metric(self, name: str) -> list[str]:
        """Return the lines of a metric."""
        with self.namespace.entered():
            body = http_request(METRICS_ADDRESS, METRICS_PORT, "/metrics").body
        return [line for line in body.decode().splitlines() if line.startswith(name)]

    def connect(self, version: plan.Version, frontend: tuple[plan.Addresses, int]) -> OpenConnection:
        return OpenConnection(self.lab.host("local-3"), frontend[0].of(version), frontend[1])


@pytest.fixture
def node_of_run(lab: Lab, tmp_path: Path) -> Iterator[DrainingRun]:
    with Responders() as servers:
        for pod in PODS:
            servers.serve(lab.host(pod), PORT)
        yield DrainingRun(lab, tmp_path)


def _three_protocols() -> list[dict[str, Any]]:
    """Return the annotated Service with one port number for all protocols, and the slice of its UDP port."""
    ports = [{"name": name, "port": SERVICE_PORT, "protocol": protocol} for name, protocol in PROTOCOLS.items()]
    udp = {**_endpoints("local-1"), "ports": [{"name": "dns", "port": PORT, "protocol": "UDP"}]}
    udp["metadata"] = {**udp["metadata"], "name": "web-udp"}
    return [_annotated(service("web", 30, *ports), "reset"), udp]


def _tcp_and_sctp(pod: str) -> dict[str, Any]:
    ports = [{"name": name, "port": PORT, "protocol": PROTOCOLS[name]} for name in ("http", "ctl")]
    return {**_endpoints(pod), "ports": ports}


def _entry(protocol: str, version: plan.Version) -> Entry:
    """Return the entry of a client outside at the frontend and endpoint of the TCP connection."""
    client, frontend, pod = (addresses(name).of(version) for name in ("outside", "cluster.30", "local-1"))
    return Entry(protocol, (client, 40000), (frontend, SERVICE_PORT), (pod, PORT))


def test_knft_run_ends_connections_of_the_annotated_service(node_of_run: DrainingRun) -> None:
    """Its TCP connections to the deleted endpoint, in both families.

    Connections of another Service to this endpoint stay. So do an SCTP entry of the deleted endpoint, and a UDP entry
    of the same address and port, which is still an endpoint of the UDP port; else the entry would be stale.
    """
    node, shared = node_of_run, [*_three_protocols(), _other()]
    with (
        node.running(*shared, _tcp_and_sctp("local-1"), _endpoints("local-1", name="other")) as run,
        ExitStack() as opened,
    ):
        connections = {
            (version, name): opened.enter_context(node.connect(version, frontend))
            for version in VERSIONS
            for name, frontend in (("web", FRONTENDS["cluster IP"]), ("other", OTHER))
        }
        assert {connection.server for connection in connections.values()} == {"local-1"}
        kept = {version: {_entry(protocol, version) for protocol in ("UDP", "SCTP")} for version in VERSIONS}
        with node.namespace.entered():
            add_entries(itertools.chain(*kept.values()))
        node.write(*shared, _tcp_and_sctp("local-2"), _endpoints("local-2", name="other"))
        for family in Family:
            run.wait_for_log(f"{family.value}: ended 1 TCP connections to deleted endpoints of default/web:http\n")
        assert node.metric("knft_drain_ended_connections_total") == [
            f'knft_drain_ended_connections_total{{ip_family="{family.value}"}} 1.0' for family in Family
        ]
        with node.namespace.entered():
            assert all(entries <= listed_entries(version) for version, entries in kept.items())
        outcomes = {key: connection.send(b"still there?") for key, connection in connections.items()}
        assert outcomes == {key: "reset" if key[1] == "web" else "echo" for key in connections}
