"""Clients of UDP that keep their port, while their Service's endpoints come and go: conntrack must not blackhole them.

Each dials again and again from one port, so that all it says is one flow, whose translation the kernel remembers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from knft.config import Config
from knft.kernel.addresses import local_addresses
from knft.model.names import Family
from knft.sync.conntrack import FlowCleaner
from tests.conntrack.entries import Entry, numbered
from tests.kernel.harness import CONFIG
from tests.lab import plan
from tests.lab.outcomes import Answered, AnyProtocol, Outcome, Rejected
from tests.lab.responders import Responders
from tests.lab.topology import Lab
from tests.lab.traffic import OpenConnection, dial
from tests.packets.families import addresses
from tests.packets.programmed import ProgrammedNode, balanced, both_protocols, endpoints, service
from tests.packets.scenario import VERSIONS

pytestmark = pytest.mark.kernel
NAME, NODE_PORT, PORT = "flows", 30300, 8080
PODS = ("local-1", "local-2", "remote-1")
CLIENT_PORT = 25353


class CleanedNode(ProgrammedNode):
    """The node, whose flows are looked at after every sync, as ``knft run`` has it done."""

    def __init__(self, lab: Lab, config: Config = CONFIG) -> None:
        super().__init__(lab, config)
        self.cleaner = FlowCleaner(config, local_addresses)
        self.forgotten = 0

    def apply(self, objects: Any) -> Any:
        for family in Family:
            self.cleaner.begun(family)
        reports = super().apply(objects)
        for family, report in reports.items():
            self.cleaner.synced(report, self._harness.proxiers[family].state)
        with self.namespace.entered():
            self.forgotten = sum(map(self.cleaner.reconcile, self.cleaner._take_due()))
        return reports


@pytest.fixture
def node(lab: Lab) -> Iterator[CleanedNode]:
    """The node, with servers on three pods and on the outside host."""
    with Responders() as servers, CleanedNode(lab) as cleaned:
        for host in (*PODS, "outside"):
            for port in (PORT, PORT + 1, NODE_PORT):
                servers.serve(lab.host(host), port, "udp")
                servers.serve(lab.host(host), port, "tcp")
        yield cleaned


def _service(**spec: Any) -> dict[str, Any]:
    item = service(NAME, 30, *both_protocols("dns", 53, NODE_PORT), externalIPs=["$external.130"], **spec)
    return balanced(item, "$external.131")


def _endpoints(*pods: str, port: int = PORT, **conditions: bool) -> dict[str, Any]:
    item = endpoints(NAME, *pods, dns=port)
    for endpoint in item["endpoints"]:
        endpoint["conditions"] = conditions
    return item


class Client(NamedTuple):
    """Who dials which frontend."""

    host: str
    frontend: str

    def dial(self, node: ProgrammedNode, version: plan.Version, protocol: AnyProtocol = "udp") -> Outcome:
        """Say something from the one port."""
        return dial(
            node.lab.host(self.host),
            FRONTENDS[self.frontend].of(version),
            NODE_PORT if self.frontend == "NodePort" else 53,
            protocol,
            source_port=CLIENT_PORT,
            timeout=0.5,
        )

    def server(self, node: ProgrammedNode, version: plan.Version) -> str:
        """Return who answers."""
        found = self.dial(node, version)
        assert isinstance(found, Answered)
        return found.server


FRONTENDS = {
    "cluster IP": addresses("cluster.30"),
    "NodePort": plan.NODE.lan,
    "external IP": addresses("external.130"),
    "load balancer": addresses("external.131"),
}
CLIENTS = [Client(host, frontend) for host in ("local-3", "node", "outside") for frontend in FRONTENDS]
every_way = pytest.mark.parametrize("version", VERSIONS)
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.host}-{client.frontend}")


def _flow(node: CleanedNode, version: plan.Version) -> dict[Entry, int]:
    """Return the client's flows of UDP on the node, with the numbers the kernel gave them."""
    with node.namespace.entered():
        found = numbered(version)
    return {
        entry: number for entry, number in found.items() if entry.protocol == "UDP" and entry.client[1] == CLIENT_PORT
    }


@every_way
@every_client
def test_a_client_keeps_working_when_its_server_is_replaced(
    node: CleanedNode, client: Client, version: plan.Version
) -> None:
    node.apply([_service(), _endpoints("local-1")])
    assert client.server(node, version) == "local-1"
    node.apply([_endpoints("local-2")])
    assert client.server(node, version) == "local-2"
    node.apply([_endpoints("remote-1")])
    assert client.server(node, version) == "remote-1"


@every_way
@every_client
def test_a_client_keeps_working_when_the_target_port_changes(
    node: CleanedNode, client: Client, version: plan.Version
) -> None:
    node.apply([_service(), _endpoints("local-1")])
    first = client.dial(node, version)
    node.apply([_endpoints("local-1", port=PORT + 1)])
    second = client.dial(node, version)
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert (first.port, second.port) == (PORT, PORT + 1)


@every_way
@every_client
def test_a_client_is_served_once_an_endpoint_is_ready(node: CleanedNode, client: Client, version: plan.Version) -> None:
    """It has dialled before; what the kernel remembers of that must not lead nowhere."""
    node.apply([_service(), _endpoints("local-1", ready=False, serving=False)])
    assert client.dial(node, version) == Rejected("icmp")
    node.apply([_endpoints("local-1", ready=True)])
    assert client.server(node, version) == "local-1"


@every_way
@pytest.mark.parametrize("frontend", ["external IP", "load balancer"])
def test_a_client_that_dialled_before_there_was_a_service_is_served(
    node: CleanedNode, frontend: str, version: plan.Version
) -> None:
    """Its flow was never translated: it went to whoever was behind the default route, who swallowed it."""
    client = Client("local-3", frontend)
    assert not isinstance(client.dial(node, version), Answered)
    assert [entry.dialled == entry.answering for entry in _flow(node, version)] == [True]
    node.apply([_service(), _endpoints("local-1")])
    assert client.server(node, version) == "local-1"


@every_way
@every_client
def test_a_service_scaled_to_nothing_and_back(node: CleanedNode, client: Client, version: plan.Version) -> None:
    """The client is refused, which it hears at once, and served again as soon as there is an endpoint."""
    node.apply([_service(), _endpoints("local-1")])
    assert client.server(node, version) == "local-1"
    node.apply([_endpoints()])
    assert client.dial(node, version) == Rejected("icmp")
    # The node's packets to itself are refused only after conntrack has seen them.
    assert [entry for entry in _flow(node, version) if entry.answering != entry.dialled] == []
    node.apply([_endpoints("local-2")])
    assert client.server(node, version) == "local-2"


KEEPING: dict[str, list[dict[str, Any]]] = {
    "another endpoint comes": [_endpoints("local-1", "local-2", "remote-1")],
    "its endpoint ends, and serves meanwhile": [_endpoints("local-1", ready=False, serving=True, terminating=True)],
    "its endpoint is not ready, and serves": [_endpoints("local-1", ready=False, serving=True), endpoints("x", dns=1)],
    "the policies change": [_service(internalTrafficPolicy="Local", externalTrafficPolicy="Local")],
    "affinity comes": [_service(sessionAffinity="ClientIP")],
    "another Service of UDP comes": [
        service("other", 31, *both_protocols("dns", 53)),
        endpoints("other", "local-2", dns=1),
    ],
    "the Service goes without its external addresses": [service(NAME, 30, *both_protocols("dns", 53, NODE_PORT))],
}


@every_way
@every_client
@pytest.mark.parametrize("changes", KEEPING.values(), ids=KEEPING.keys())
def test_a_flow_that_lives_is_not_touched(
    node: CleanedNode, client: Client, version: plan.Version, changes: list[dict[str, Any]]
) -> None:
    """It is the very same to the kernel, and whoever answered goes on answering."""
    node.apply([_service(), _endpoints("local-1")])
    assert client.server(node, version) == "local-1"
    before = _flow(node, version)
    node.apply(changes)
    assert _flow(node, version) == before != {}
    assert node.forgotten == 0


@every_way
def test_connections_of_tcp_are_left_alone(node: CleanedNode, version: plan.Version) -> None:
    """Although their endpoint is gone: they end as their own ends will have it."""
    node.apply([_service(), _endpoints("local-1")])
    with OpenConnection(node.lab.host("outside"), FRONTENDS["cluster IP"].of(version), 53) as connection:
        assert connection.server == "local-1"
        node.apply([_endpoints("local-2")])
        assert connection.echoes(b"still there")
        node.apply([_endpoints()])
        assert connection.echoes(b"and now")


@every_way
def test_strangers_flows_of_udp_are_left_alone(node: CleanedNode, version: plan.Version) -> None:
    """Through the node to another host's port that has a NodePort's number, and to a pod itself."""
    node.apply([_service(), _endpoints("local-1")])
    lab = node.lab
    strangers = [(lab.host("outside"), NODE_PORT), (lab.host("local-1"), PORT), (lab.host("remote-1"), NODE_PORT)]
    for host, port in strangers:
        found = dial(lab.host("local-3"), host.address(version), port, "udp", source_port=CLIENT_PORT)
        assert isinstance(found, Answered)
        assert found.server == host.name
    before = _flow(node, version)
    assert len(before) == len(strangers)
    node.apply([_endpoints("local-2")])
    node.apply([_endpoints()])
    assert _flow(node, version) == before
