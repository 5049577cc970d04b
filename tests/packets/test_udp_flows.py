"""UDP clients that keep their source port while endpoints change: conntrack entries must not lead to removed endpoints.

All packets of a client are one conntrack entry, with one translation. The clients are a pod, the node itself and a host
outside, at each kind of frontend.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from knft.config import Config
from knft.families import Family
from knft.kernel.addresses import local_addresses
from knft.sync.flow_cleaner import FlowCleaner
from tests.support.conntrack_entries import Entry, entry_ids
from tests.support.families import addresses
from tests.support.kernel_harness import CONFIG
from tests.support.lab import plan
from tests.support.lab.outcomes import Answered, Outcome, Rejected
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import OpenConnection, dial
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import VERSIONS
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.kernel
NAME, NODE_PORT, PORT = "flows", 30300, 8080
PODS = ("local-1", "local-2", "remote-1")


class CleanedNode(ProgrammedNode):
    """The node; stale conntrack entries are deleted after every sync, as in ``knft run``."""

    def __init__(self, lab: Lab, config: Config = CONFIG) -> None:
        super().__init__(lab, config)
        self.cleaner = FlowCleaner(config, local_addresses, grace=0.0)
        self.deleted = 0

    def apply(self, objects: Any) -> Any:
        for family in Family:
            self.cleaner.sync_started(family)
        reports = super().apply(objects)
        for family, report in reports.items():
            self.cleaner.sync_succeeded(report, self._harness.proxiers[family].state)
        with self.namespace.entered():
            self.deleted = sum(map(self.cleaner.run_pass, self.cleaner._start_due_passes()))
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
    item = service(NAME, 30, *tcp_and_udp("dns", 53, NODE_PORT), externalIPs=["$external.130"], **spec)
    return with_load_balancer(item, "$external.131")


def _endpoints(*pods: str, port: int = PORT, **conditions: bool) -> dict[str, Any]:
    item = endpoints(NAME, *pods, dns=port)
    for endpoint in item["endpoints"]:
        endpoint["conditions"] = conditions
    return item


FRONTENDS = {
    "cluster IP": addresses("cluster.30"),
    "NodePort": plan.NODE.lan,
    "external IP": addresses("external.130"),
    "load balancer": addresses("external.131"),
}


class Client(NamedTuple):
    """A host that connects to a frontend, always from the same port."""

    host: str
    frontend: str
    port: int

    def dial(self, node: ProgrammedNode, version: plan.Version, timeout: float = TIMEOUT) -> Outcome:
        """Send a datagram."""
        number = NODE_PORT if self.frontend == "NodePort" else 53
        address = FRONTENDS[self.frontend].of(version)
        return dial(node.lab.host(self.host), address, number, "udp", source_port=self.port, timeout=timeout)


HOSTS = ("local-3", "node", "outside")
"""A pod, the node itself, and a host outside the cluster."""
CLIENTS = [
    Client(host, frontend, 25353 + number)
    for number, (host, frontend) in enumerate(itertools.product(HOSTS, FRONTENDS))
]
each_family = pytest.mark.parametrize("version", VERSIONS)


def _outcomes(node: ProgrammedNode, version: plan.Version) -> dict[Client, Outcome]:
    return {client: client.dial(node, version) for client in CLIENTS}


def _servers(node: ProgrammedNode, version: plan.Version) -> dict[Client, str]:
    """Return the server of each client."""
    found = _outcomes(node, version)
    return {client: one.server if isinstance(one, Answered) else str(one) for client, one in found.items()}


def _every_client(answer: str | Outcome) -> dict[Client, Any]:
    return dict.fromkeys(CLIENTS, answer)


def _flows(node: CleanedNode, version: plan.Version) -> dict[Entry, int]:
    """Return the clients' UDP entries on the node, with the kernel's ids."""
    ports = {client.port for client in CLIENTS}
    with node.namespace.entered():
        found = entry_ids(version)
    return {entry: number for entry, number in found.items() if entry.protocol == "UDP" and entry.client[1] in ports}


@each_family
def test_clients_keep_working_when_their_server_is_replaced(node: CleanedNode, version: plan.Version) -> None:
    node.apply([_service(), _endpoints("local-1")])
    assert _servers(node, version) == _every_client("local-1")
    node.apply([_endpoints("local-2")])
    assert _servers(node, version) == _every_client("local-2")
    node.apply([_endpoints("remote-1")])
    assert _servers(node, version) == _every_client("remote-1")


@each_family
def test_clients_keep_working_when_the_target_port_changes(node: CleanedNode, version: plan.Version) -> None:
    node.apply([_service(), _endpoints("local-1")])
    first = _outcomes(node, version).values()
    node.apply([_endpoints("local-1", port=PORT + 1)])
    second = _outcomes(node, version).values()
    assert {one.port if isinstance(one, Answered) else one for one in first} == {PORT}
    assert {one.port if isinstance(one, Answered) else one for one in second} == {PORT + 1}


@each_family
def test_clients_are_served_once_an_endpoint_is_ready(node: CleanedNode, version: plan.Version) -> None:
    """The conntrack entries of their rejected datagrams do not remain."""
    node.apply([_service(), _endpoints("local-1", ready=False, serving=False)])
    assert _outcomes(node, version) == _every_client(Rejected("icmp"))
    node.apply([_endpoints("local-1", ready=True)])
    assert _servers(node, version) == _every_client("local-1")


@each_family
def test_clients_that_connected_before_the_service_existed_are_served(node: CleanedNode, version: plan.Version) -> None:
    """Their datagrams were not translated, and dropped by the router behind the default route."""
    outer = ("external IP", "load balancer")
    clients = [client for client in CLIENTS if client.host == "local-3" and client.frontend in outer]
    assert not any(isinstance(client.dial(node, version, timeout=0.5), Answered) for client in clients)
    assert [entry.original_destination == entry.reply_source for entry in _flows(node, version)] == [True] * len(
        clients
    )
    node.apply([_service(), _endpoints("local-1")])
    assert _servers(node, version) == _every_client("local-1")


@each_family
def test_clients_are_rejected_at_zero_endpoints_and_then_served_again(node: CleanedNode, version: plan.Version) -> None:
    """Clients are rejected at once, and served again as soon as there is an endpoint."""
    node.apply([_service(), _endpoints("local-1")])
    assert _servers(node, version) == _every_client("local-1")
    node.apply([_endpoints()])
    assert _outcomes(node, version) == _every_client(Rejected("icmp"))
    # The node's packets to itself are rejected after conntrack has seen them, so they have entries.
    assert [entry for entry in _flows(node, version) if entry.reply_source != entry.original_destination] == []
    node.apply([_endpoints("local-2")])
    assert _servers(node, version) == _every_client("local-2")


HARMLESS_CHANGES: dict[str, list[dict[str, Any]]] = {
    "another endpoint is added": [_endpoints("local-1", "local-2", "remote-1")],
    "the endpoint terminates and is serving": [_endpoints("local-1", ready=False, serving=True, terminating=True)],
    "the endpoint is not ready and is serving": [
        _endpoints("local-1", ready=False, serving=True),
        endpoints("x", dns=1),
    ],
    "the policies change": [_service(internalTrafficPolicy="Local", externalTrafficPolicy="Local")],
    "affinity is switched on": [_service(sessionAffinity="ClientIP")],
    "another UDP Service is added": [
        service("other", 31, *tcp_and_udp("dns", 53)),
        endpoints("other", "local-2", dns=1),
    ],
    "external addresses are removed": [service(NAME, 30, *tcp_and_udp("dns", 53, NODE_PORT))],
}


@each_family
@pytest.mark.parametrize("changes", HARMLESS_CHANGES.values(), ids=HARMLESS_CHANGES.keys())
def test_valid_entries_are_not_deleted(node: CleanedNode, version: plan.Version, changes: list[dict[str, Any]]) -> None:
    """The kernel's ids are the same before and after."""
    node.apply([_service(), _endpoints("local-1")])
    assert _servers(node, version) == _every_client("local-1")
    before = _flows(node, version)
    node.apply(changes)
    assert _flows(node, version) == before
    assert len(before) == len(CLIENTS)
    assert node.deleted == 0


@each_family
def test_tcp_connections_are_not_deleted(node: CleanedNode, version: plan.Version) -> None:
    """TCP entries remain after their endpoint is removed, until client and server close the connection."""
    node.apply([_service(), _endpoints("local-1")])
    with OpenConnection(node.lab.host("outside"), FRONTENDS["cluster IP"].of(version), 53) as connection:
        assert connection.server == "local-1"
        node.apply([_endpoints("local-2")])
        assert connection.echoes(b"still there")
        node.apply([_endpoints()])
        assert connection.echoes(b"and now")


@each_family
def test_udp_entries_of_other_programs_are_not_deleted(node: CleanedNode, version: plan.Version) -> None:
    """The other entries are to another host at the number of a NodePort, and to a pod directly."""
    node.apply([_service(), _endpoints("local-1")])
    lab = node.lab
    targets = [(lab.host("outside"), NODE_PORT), (lab.host("local-1"), PORT), (lab.host("remote-1"), NODE_PORT)]
    for host, port in targets:
        found = dial(lab.host("local-3"), host.address(version), port, "udp", source_port=CLIENTS[0].port)
        assert isinstance(found, Answered)
        assert found.server == host.name
    before = _flows(node, version)
    assert len(before) == len(targets)
    node.apply([_endpoints("local-2")])
    node.apply([_endpoints()])
    assert _flows(node, version) == before
