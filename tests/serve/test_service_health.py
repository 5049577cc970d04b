"""Tests of health check node ports over real HTTP (docs/behaviour/health.md#services)."""

import logging
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from knft.comparison.explained import object_source
from knft.config import Config
from knft.explain.explain import explain
from knft.explain.query import parse_query
from knft.explain.sentences import Sentence
from knft.families import Family
from knft.model.events import Event, ObjectReference
from knft.model.objects import ObjectChange
from tests.serve.node import (
    HEALTH,
    LOOPBACK,
    METRICS,
    MonitoredNode,
    default_service_name,
    load_balancer_service,
)
from tests.support.http_client import (
    TIMEOUT_SECONDS,
    http_request,
    parse_response,
    refuses_connections,
    send_and_receive,
)
from tests.support.kernel_harness import CONFIG, service, slices
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
PORT, OTHER = 30100, 30200
ALL_ADDRESSES = Config("node-1", nodeport_addresses=("all",), cluster_cidrs=CONFIG.cluster_cidrs)


@pytest.fixture
def node(namespace: Namespace) -> Iterator[MonitoredNode]:
    """A node with NodePorts on all addresses."""
    with MonitoredNode(namespace, ALL_ADDRESSES) as node:
        yield node


def _body(name: str, count: int, healthy: str = "true") -> bytes:
    return (
        f'{{\n\t"service": {{\n\t\t"namespace": "default",\n\t\t"name": "{name}"\n\t}},\n'
        f'\t"localEndpoints": {count},\n\t"serviceProxyHealthy": {healthy}\n}}'
    ).encode()


def _expect(port: int, name: str, count: int, *, healthy: bool = True) -> None:
    for address in (LOOPBACK, "::1"):
        answer = http_request(address, port, "/any/path?at=all")
        assert answer.status == (200 if count and healthy else 503)
        assert answer.body == _body(name, count, str(healthy).lower())
        assert answer.headers == {
            "content-type": "application/json",
            "x-content-type-options": "nosniff",
            "x-load-balancing-endpoint-weight": str(count),
            "date": answer.headers["date"],
            "content-length": str(len(answer.body)),
            "connection": "close",
        }


def _gone(port: int) -> bool:
    return refuses_connections(LOOPBACK, port) and refuses_connections("::1", port)


def test_health_check_ports_follow_services_and_local_endpoints(node: MonitoredNode) -> None:
    """Endpoint counts and ports change, Services are deleted, and slices without a Service are ignored."""
    node.apply_and_sync()
    assert _gone(PORT)
    node.apply_and_sync(load_balancer_service("web", PORT))
    _expect(PORT, "web", 0)
    node.apply_and_sync(*slices("web", range(1, 19), local=range(1, 19)))
    _expect(PORT, "web", 18)
    node.apply_and_sync(*slices("web", []))
    _expect(PORT, "web", 0)
    node.apply_and_sync(*slices("without-service", [1], local=[1]))
    node.apply_and_sync(
        load_balancer_service("more", OTHER, 20),
        *slices("more", [1, 2, 3], local=[2, 3]),
        *slices("web", [9], local=[9]),
    )
    _expect(PORT, "web", 1)
    _expect(OTHER, "more", 2)
    node.apply_and_sync(load_balancer_service("web", 30101))
    assert _gone(PORT)
    _expect(30101, "web", 1)
    node.delete("Service", "more")
    node.apply_and_sync()
    assert _gone(OTHER)
    _expect(30101, "web", 1)
    node.apply_and_sync(load_balancer_service("web", 30101, type="ClusterIP", externalTrafficPolicy=None))
    assert _gone(30101)


def test_explanation_of_a_health_check_port_says_that_knft_answers(node: MonitoredNode) -> None:
    node.apply_and_sync(load_balancer_service("web", PORT))
    changes = tuple(ObjectChange(None, each) for each in node.objects.values())
    found = explain(parse_query(f":{PORT}"), object_source(changes, ALL_ADDRESSES))
    assert [each.kind for each in found.conclusion] == [Sentence.HEALTH_CHECK_PORT.kind]
    _expect(PORT, "web", 0)


def test_only_ready_local_endpoint_addresses_count_once(node: MonitoredNode) -> None:
    """Three endpoints are local and one is remote; one of the local ones is terminating."""
    several = slices("web", [1, 2, 3, 4], local=[1, 2, 3])
    for each in several:
        each["ports"] = [
            {"name": "http", "port": 8080},
            {"name": "more", "port": 8081},
            {"name": "other", "port": 8082},
        ]
        each["endpoints"][2]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    node.apply_and_sync(load_balancer_service("web", PORT), *several)
    _expect(PORT, "web", 2)


@pytest.mark.parametrize("changed", ["removed", "added", "renamed"])
def test_change_of_one_of_several_ports(node: MonitoredNode, changed: str) -> None:
    """The Service keeps its health check port and its count."""
    node.apply_and_sync(load_balancer_service("web", PORT), *slices("web", [1, 2], local=[1, 2]))
    ports = {
        "removed": [{"name": "http", "port": 80}],
        "added": [{"name": "http", "port": 80}, {"name": "more", "port": 81}, {"name": "third", "port": 82}],
        "renamed": [{"name": "http", "port": 80}, {"name": "most", "port": 81}],
    }
    node.apply_and_sync(load_balancer_service("web", PORT, ports=ports[changed]))
    for known in node.monitoring.service_health._services.values():
        assert {name.port for name in known._ports_by_service[default_service_name("web")]} == {
            each["name"] for each in ports[changed]
        }
    _expect(PORT, "web", 2)
    node.apply_and_sync(*slices("web", [1], local=[1]))
    _expect(PORT, "web", 1)
    node.delete("Service", "web")
    node.apply_and_sync()
    assert _gone(PORT)


def test_two_services_swap_ports(node: MonitoredNode) -> None:
    """All old ports are closed before any new port is opened."""
    node.apply_and_sync(
        load_balancer_service("a", PORT, 1), load_balancer_service("b", OTHER, 2), *slices("a", [1], local=[1])
    )
    node.apply_and_sync(load_balancer_service("a", OTHER, 1), load_balancer_service("b", PORT, 2))
    _expect(OTHER, "a", 1)
    _expect(PORT, "b", 0)
    assert node.events[1:] == []


def test_late_proxy_is_unhealthy(node: MonitoredNode) -> None:
    """A late family makes the responses of both families unhealthy."""
    node.apply_and_sync(load_balancer_service("web", PORT), *slices("web", [1], local=[1]))
    node.monitoring.health.sync_queued(Family.IPV6)
    node.clock.pass_time(60)
    _expect(PORT, "web", 1, healthy=False)
    node.apply_and_sync()
    _expect(PORT, "web", 1)


def test_ineligible_node_still_answers_health_checks(node: MonitoredNode) -> None:
    node.apply_and_sync(load_balancer_service("web", PORT), *slices("web", [1], local=[1]))
    node.eligible = False
    _expect(PORT, "web", 1)


def test_every_method_is_answered(node: MonitoredNode) -> None:
    """Like kube-proxy: some load balancers send OPTIONS."""
    node.apply_and_sync(load_balancer_service("web", PORT), *slices("web", [1], local=[1]))
    assert parse_response(send_and_receive(LOOPBACK, PORT, b"OPTIONS / HTTP/1.0\r\n\r\n")).body == _body("web", 1)
    assert http_request(LOOPBACK, PORT, method="HEAD").headers["x-load-balancing-endpoint-weight"] == "1"


def test_single_family_service_listens_in_its_family(node: MonitoredNode) -> None:
    single: dict[str, Any] = {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ipFamilies": ["IPv4"]}
    node.apply_and_sync(load_balancer_service("web", PORT, **single))
    assert http_request(LOOPBACK, PORT).status == 503
    assert refuses_connections("::1", PORT)


def _node_object(*addresses: str) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": listed}}


def test_only_node_port_addresses_listen(namespace: Namespace) -> None:
    """By default these are the node's addresses; the ports follow when they change."""
    with netlink(namespace) as link:
        for address in ("192.0.2.1", "192.0.2.2", "2001:db8::1"):
            link.add_loopback_address(address)
    with MonitoredNode(namespace) as node:
        node.apply_and_sync(load_balancer_service("web", PORT), *slices("web", [1], local=[1]))
        assert refuses_connections("192.0.2.1", PORT)
        node.apply_and_sync(_node_object("192.0.2.1", "2001:db8::1"))
        assert {http_request(address, PORT).status for address in ("192.0.2.1", "2001:db8::1")} == {200}
        assert refuses_connections(LOOPBACK, PORT)
        node.apply_and_sync(_node_object("192.0.2.2"))
        assert http_request("192.0.2.2", PORT).status == 200
        assert refuses_connections("192.0.2.1", PORT)
        assert refuses_connections("2001:db8::1", PORT)


def test_node_port_cidrs_select_interface_addresses(namespace: Namespace) -> None:
    """The ports follow the interface addresses that the daemon gets."""
    for address in ("192.0.2.1/32", "192.0.2.2/32", "198.51.100.1/32"):
        namespace.run(["ip", "address", "add", address, "dev", "lo"])
    with MonitoredNode(namespace, Config("node-1", nodeport_addresses=("192.0.2.0/24",))) as node:
        node.daemon.update_local_addresses(frozenset({"127.0.0.1", "192.0.2.1", "198.51.100.1"}))
        node.apply_and_sync(load_balancer_service("web", PORT))
        assert http_request("192.0.2.1", PORT).status == 503
        assert refuses_connections("198.51.100.1", PORT)
        node.daemon.update_local_addresses(frozenset({"127.0.0.1", "192.0.2.1", "192.0.2.2"}))
        node.apply_and_sync()
        assert {http_request(address, PORT).status for address in ("192.0.2.1", "192.0.2.2")} == {503}


REASON = "0.0.0.0 port 30100: Address already in use"
MESSAGE = f"node node-1 cannot serve health checks of Service default/web at {REASON}; retrying every 30 s"


def test_port_in_use_is_retried_by_the_next_sync(node: MonitoredNode, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is reported once; the other family and other Services are served."""
    with socket.create_server(("0.0.0.0", PORT)), caplog.at_level(logging.ERROR, "knft"):  # noqa: S104 - in a namespace
        node.apply_and_sync(
            load_balancer_service("web", PORT), load_balancer_service("more", OTHER, 20), *slices("web", [1], local=[1])
        )
        assert http_request("::1", PORT).status == 200
        assert http_request(LOOPBACK, OTHER).status == 503
        node.apply_and_sync()
    assert caplog.messages == [MESSAGE]
    assert node.events[1:] == [
        Event(
            ObjectReference("Service", "web", "default", "default/web"),
            "FailedToStartServiceHealthcheck",
            "Listen",
            MESSAGE,
            warning=True,
        )
    ]
    assert refuses_connections(LOOPBACK, PORT)
    node.apply_and_sync()
    _expect(PORT, "web", 1)
    node.delete("Service", "web")
    node.apply_and_sync()
    with socket.create_server((LOOPBACK, PORT)):
        node.apply_and_sync(load_balancer_service("web", PORT))
    assert len(node.events) == 3, "the new failure was not reported"
    node.delete("Service", "web")
    node.apply_and_sync()
    assert not node.monitoring.service_health.servers[Family.IPV4].has_failures


def test_service_listens_on_all_addresses_or_none(namespace: Namespace) -> None:
    """The Service listens on both when the second becomes available."""
    namespace.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
    with MonitoredNode(namespace, Config("node-1", nodeport_addresses=("192.0.2.0/24",))) as node:
        node.daemon.update_local_addresses(frozenset({"192.0.2.1"}))
        node.apply_and_sync(load_balancer_service("web", PORT))
        assert http_request("192.0.2.1", PORT).status == 503
        node.daemon.update_local_addresses(frozenset({"192.0.2.1", "192.0.2.2"}))
        node.apply_and_sync()
        assert refuses_connections("192.0.2.1", PORT)
        assert "192.0.2.2 port 30100: Cannot assign requested address" in node.events[-1].note
        namespace.run(["ip", "address", "add", "192.0.2.2/32", "dev", "lo"])
        node.apply_and_sync()
        assert {http_request(address, PORT).status for address in ("192.0.2.1", "192.0.2.2")} == {503}


@pytest.mark.parametrize(
    ("port", "reason"),
    [
        (22, "it is privileged; give the Service a healthCheckNodePort from the range of NodePorts"),
        (HEALTH, "knft's own server uses this port (--healthz-bind-address)"),
        (METRICS, "knft's own server uses this port (--metrics-bind-address)"),
    ],
)
def test_port_of_another_program_is_refused(
    node: MonitoredNode, caplog: pytest.LogCaptureFixture, port: int, reason: str
) -> None:
    """The refusal is reported once for each family; other Services are served, and a corrected port is opened."""
    with caplog.at_level(logging.ERROR, "knft"):
        for _ in range(2):
            node.apply_and_sync(load_balancer_service("web", port), load_balancer_service("more", OTHER, 20))
    message = f"node node-1 does not serve health checks of Service default/web at port {port}: {reason}"
    assert caplog.messages == [message] * 2
    assert [event.note for event in node.events[1:]] == [message] * 2
    assert node.monitoring.service_health.servers[Family.IPV4].listen_failures == 1
    assert http_request(LOOPBACK, OTHER).status == 503
    node.apply_and_sync(load_balancer_service("web", PORT))
    _expect(PORT, "web", 0)


def test_port_in_use_is_retried_without_a_sync(node: MonitoredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knft.serve.service_health.RETRY_SECONDS", 0.02)
    with socket.create_server(("0.0.0.0", PORT)):  # noqa: S104 - in a namespace
        node.apply_and_sync(load_balancer_service("web", PORT))
        servers = node.monitoring.service_health.servers[Family.IPV4]
        wait_until(lambda: servers.listen_failures > 3)
        assert len(node.events) == 2
    wait_until(lambda: not refuses_connections(LOOPBACK, PORT))
    assert http_request(LOOPBACK, PORT).status == 503


def test_open_connection_of_a_closed_service_gets_an_empty_response(
    node: MonitoredNode, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that connected before gets an empty 200, as from kube-proxy."""
    node.apply_and_sync(load_balancer_service("web", PORT))
    with (
        socket.create_connection((LOOPBACK, PORT), TIMEOUT_SECONDS) as connection,
        caplog.at_level(logging.ERROR, "knft"),
    ):
        connection.sendall(b"GET /")
        node.wait_for_http_thread()
        node.delete("Service", "web")
        node.apply_and_sync()
        connection.sendall(b" HTTP/1.0\r\n\r\n")
        answer = parse_response(connection.recv(1000))
    assert (answer.status, answer.body) == (200, b"")
    assert caplog.messages == [
        "received a health check for Service default/web, which no longer has a health check port"
    ]


def test_failed_syncs_lose_no_changes(node: MonitoredNode) -> None:
    """Changes during failed syncs take effect with the first successful sync, and not before."""
    node.apply_and_sync()
    for port in node.checked_tables.values():
        port.refused_commits = port.refused_reads = 1000
    node.apply(load_balancer_service("web", PORT), *slices("web", [1, 2], local=[1]))
    assert not node.daemon.sync()
    node.wait_for_http_thread()
    assert _gone(PORT)
    for port in node.checked_tables.values():
        port.stop_failing()
    node.apply_and_sync()
    _expect(PORT, "web", 1)


@pytest.fixture
def few_files() -> Iterator[None]:
    """The usual soft limit of open files, below the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_thousands_of_ports_use_no_threads(node: MonitoredNode) -> None:
    """Each port needs a file descriptor in each family; knft raises the limit of open files."""
    before = threading.active_count()
    count = 1000
    for number in range(count):
        node.apply(
            load_balancer_service(f"s{number}", 20_000 + number, number + 1, ports=[{"name": "http", "port": 80}])
        )
    node.apply_and_sync(*slices("s999", [1], local=[1]))
    assert threading.active_count() == before
    assert {http_request(LOOPBACK, 20_000 + number).status for number in range(0, count - 1, 50)} == {503}
    _expect(20_999, "s999", 1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * count
    node.monitoring.stop()
    assert _gone(20_999)


def test_sync_reads_only_changed_services(node: MonitoredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP thread gets only the changed one of many Services."""
    for number in range(1, 30):
        node.apply(
            load_balancer_service(f"s{number}", 20_000 + number, number), service(f"plain{number}", 100 + number)
        )
    node.apply_and_sync()
    applied: list[object] = []
    for servers in node.monitoring.service_health.servers.values():
        monkeypatch.setattr(servers, "apply", lambda changes: applied.append(sorted(changes.services)))
    node.apply_and_sync(*slices("plain7", [1], local=[1]))
    assert applied == []
    node.apply_and_sync(*slices("s7", [1], local=[1]))
    assert applied == [[("default", "s7")]] * 2


def test_left_table_closes_the_ports_until_the_next_sync(node: MonitoredNode) -> None:
    """The process that programs the family can open them; this one does not know the local endpoints."""
    node.apply_and_sync(load_balancer_service("web", PORT), *slices("web", [11], local=[11]))
    wait_until(lambda: not refuses_connections(LOOPBACK, PORT))
    for observer in node.monitoring.observers_with():
        observer.table_left(Family.IPV4)
    wait_until(lambda: refuses_connections(LOOPBACK, PORT))
    assert not refuses_connections("::1", PORT)
    node.apply_and_sync()
    wait_until(lambda: not refuses_connections(LOOPBACK, PORT))
    _expect(PORT, "web", 1)
