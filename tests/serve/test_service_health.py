"""The health check node ports over real HTTP: what they answer, where, and how they follow (behaviour.md G.2, K.3)."""

import logging
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from knft.config import Config
from knft.model.names import Family
from knft.serve.events import Event
from tests.kernel.harness import CONFIG, service, slices
from tests.serve.client import HANG, ask, exchange, parse, refuses
from tests.serve.node import LOOPBACK, ServedNode, default, eventually, health_checked
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
PORT, OTHER = 30100, 30200
EVERYWHERE = Config("node-1", nodeport_addresses=("all",), cluster_cidrs=CONFIG.cluster_cidrs)


@pytest.fixture
def node(namespace: Namespace) -> Iterator[ServedNode]:
    """NodePorts are to be had at every address."""
    with ServedNode(namespace, EVERYWHERE) as node:
        yield node


def _body(name: str, count: int, healthy: str = "true") -> bytes:
    return (
        f'{{\n\t"service": {{\n\t\t"namespace": "default",\n\t\t"name": "{name}"\n\t}},\n'
        f'\t"localEndpoints": {count},\n\t"serviceProxyHealthy": {healthy}\n}}'
    ).encode()


def _expect(port: int, name: str, count: int, *, healthy: bool = True) -> None:
    for address in (LOOPBACK, "::1"):
        answer = ask(address, port, "/any/path?at=all")
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
    return refuses(LOOPBACK, port) and refuses("::1", port)


def test_the_sequence_of_upstreams_test(node: ServedNode) -> None:
    """Counts come and go, ports change, Services end; what nobody has a Service for is ignored."""
    node.synced()
    assert _gone(PORT)
    node.synced(health_checked("web", PORT))
    _expect(PORT, "web", 0)
    node.synced(*slices("web", range(1, 19), local=range(1, 19)))
    _expect(PORT, "web", 18)
    node.synced(*slices("web", []))
    _expect(PORT, "web", 0)
    node.synced(*slices("nobody", [1], local=[1]))
    node.synced(
        health_checked("more", OTHER, 20), *slices("more", [1, 2, 3], local=[2, 3]), *slices("web", [9], local=[9])
    )
    _expect(PORT, "web", 1)
    _expect(OTHER, "more", 2)
    node.synced(health_checked("web", 30101))
    assert _gone(PORT)
    _expect(30101, "web", 1)
    node.delete("Service", "more")
    node.synced()
    assert _gone(OTHER)
    _expect(30101, "web", 1)
    node.synced(health_checked("web", 30101, type="ClusterIP", externalTrafficPolicy=None))
    assert _gone(30101)


def test_each_address_counts_once_and_only_where_it_is_ready_and_here(node: ServedNode) -> None:
    """Over all ports of the Service: two of them here; one endpoint is elsewhere, one is about to go."""
    several = slices("web", [1, 2, 3, 4], local=[1, 2, 3])
    for each in several:
        each["ports"] = [
            {"name": "http", "port": 8080},
            {"name": "more", "port": 8081},
            {"name": "other", "port": 8082},
        ]
        each["endpoints"][2]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    node.synced(health_checked("web", PORT), *several)
    _expect(PORT, "web", 2)


@pytest.mark.parametrize("changed", ["removed", "added", "renamed"])
def test_one_of_several_ports_changes(node: ServedNode, changed: str) -> None:
    """The Service keeps its health check port, and its count."""
    node.synced(health_checked("web", PORT), *slices("web", [1, 2], local=[1, 2]))
    ports = {
        "removed": [{"name": "http", "port": 80}],
        "added": [{"name": "http", "port": 80}, {"name": "more", "port": 81}, {"name": "third", "port": 82}],
        "renamed": [{"name": "http", "port": 80}, {"name": "most", "port": 81}],
    }
    node.synced(health_checked("web", PORT, ports=ports[changed]))
    for known in node.serving.service_health._ports.values():
        assert {name.port for name in known._by_service[default("web")]} == {each["name"] for each in ports[changed]}
    _expect(PORT, "web", 2)
    node.synced(*slices("web", [1], local=[1]))
    _expect(PORT, "web", 1)
    node.delete("Service", "web")
    node.synced()
    assert _gone(PORT)


def test_two_services_change_ports_with_each_other(node: ServedNode) -> None:
    """All that closes does so before anything opens."""
    node.synced(health_checked("a", PORT, 1), health_checked("b", OTHER, 2), *slices("a", [1], local=[1]))
    node.synced(health_checked("a", OTHER, 1), health_checked("b", PORT, 2))
    _expect(OTHER, "a", 1)
    _expect(PORT, "b", 0)
    assert node.events[1:] == []


def test_a_proxy_that_is_late_says_so(node: ServedNode) -> None:
    """Of any family, in the answers of both."""
    node.synced(health_checked("web", PORT), *slices("web", [1], local=[1]))
    node.serving.health.queued(Family.IPV6)
    node.clock.pass_time(60)
    _expect(PORT, "web", 1, healthy=False)
    node.synced()
    _expect(PORT, "web", 1)


def test_a_node_that_goes_away_makes_no_difference(node: ServedNode) -> None:
    node.synced(health_checked("web", PORT), *slices("web", [1], local=[1]))
    node.eligible = False
    _expect(PORT, "web", 1)


def test_any_method_is_answered(node: ServedNode) -> None:
    """As by kube-proxy: there are load balancers whose health checks ask for OPTIONS."""
    node.synced(health_checked("web", PORT), *slices("web", [1], local=[1]))
    assert parse(exchange(LOOPBACK, PORT, b"OPTIONS / HTTP/1.0\r\n\r\n")).body == _body("web", 1)
    assert ask(LOOPBACK, PORT, method="HEAD").headers["x-load-balancing-endpoint-weight"] == "1"


def test_a_service_of_one_family_has_a_port_in_that_one(node: ServedNode) -> None:
    single: dict[str, Any] = {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ipFamilies": ["IPv4"]}
    node.synced(health_checked("web", PORT, **single))
    assert ask(LOOPBACK, PORT).status == 503
    assert refuses("::1", PORT)


def _node_object(*addresses: str) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": listed}}


def test_only_the_addresses_of_node_ports_answer(namespace: Namespace) -> None:
    """The node's own by default, and other ones when it has others."""
    for address in ("192.0.2.1/32", "192.0.2.2/32", "2001:db8::1/128"):
        namespace.run(["ip", "address", "add", address, "dev", "lo", *(["nodad"] if ":" in address else [])])
    with ServedNode(namespace) as node:
        node.synced(health_checked("web", PORT), *slices("web", [1], local=[1]))
        assert refuses("192.0.2.1", PORT)
        node.synced(_node_object("192.0.2.1", "2001:db8::1"))
        assert {ask(address, PORT).status for address in ("192.0.2.1", "2001:db8::1")} == {200}
        assert refuses(LOOPBACK, PORT)
        node.synced(_node_object("192.0.2.2"))
        assert ask("192.0.2.2", PORT).status == 200
        assert refuses("192.0.2.1", PORT)
        assert refuses("2001:db8::1", PORT)


def test_cidrs_of_node_ports_choose_among_the_machines_addresses(namespace: Namespace) -> None:
    """They follow the machine's interfaces, as far as the daemon is told of them."""
    for address in ("192.0.2.1/32", "192.0.2.2/32", "198.51.100.1/32"):
        namespace.run(["ip", "address", "add", address, "dev", "lo"])
    with ServedNode(namespace, Config("node-1", nodeport_addresses=("192.0.2.0/24",))) as node:
        node.daemon.note_addresses(frozenset({"127.0.0.1", "192.0.2.1", "198.51.100.1"}))
        node.synced(health_checked("web", PORT))
        assert ask("192.0.2.1", PORT).status == 503
        assert refuses("198.51.100.1", PORT)
        node.daemon.note_addresses(frozenset({"127.0.0.1", "192.0.2.1", "192.0.2.2"}))
        node.synced()
        assert {ask(address, PORT).status for address in ("192.0.2.1", "192.0.2.2")} == {503}


REASON = "0.0.0.0 port 30100: Address already in use"
SENTENCE = f"node node-1 cannot answer health checks for Service default/web at {REASON}"


def test_a_port_that_is_taken_is_tried_again_by_the_next_sync(
    node: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, and costs the other family and other Services nothing."""
    with socket.create_server(("0.0.0.0", PORT)), caplog.at_level(logging.ERROR, "knft"):  # noqa: S104 - in a namespace
        node.synced(health_checked("web", PORT), health_checked("more", OTHER, 20), *slices("web", [1], local=[1]))
        assert ask("::1", PORT).status == 200
        assert ask(LOOPBACK, OTHER).status == 503
        node.synced()
    assert caplog.messages == [SENTENCE]
    assert node.events[1:] == [
        Event(
            "Service", "default", "web", "default/web", "Warning", "FailedToStartServiceHealthcheck", "Listen", SENTENCE
        )
    ]
    assert refuses(LOOPBACK, PORT)
    node.synced()
    _expect(PORT, "web", 1)
    node.delete("Service", "web")
    node.synced()
    with socket.create_server((LOOPBACK, PORT)):
        node.synced(health_checked("web", PORT))
    assert len(node.events) == 3, "a failure that comes anew is told anew"
    node.delete("Service", "web")
    node.synced()
    assert not node.serving.service_health.servers[Family.IPV4].is_incomplete


def test_where_one_address_cannot_be_had_none_is(namespace: Namespace) -> None:
    """And both, once it can."""
    namespace.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
    with ServedNode(namespace, Config("node-1", nodeport_addresses=("192.0.2.0/24",))) as node:
        node.daemon.note_addresses(frozenset({"192.0.2.1"}))
        node.synced(health_checked("web", PORT))
        assert ask("192.0.2.1", PORT).status == 503
        node.daemon.note_addresses(frozenset({"192.0.2.1", "192.0.2.2"}))
        node.synced()
        assert refuses("192.0.2.1", PORT)
        assert "192.0.2.2 port 30100: Cannot assign requested address" in node.events[-1].note
        namespace.run(["ip", "address", "add", "192.0.2.2/32", "dev", "lo"])
        node.synced()
        assert {ask(address, PORT).status for address in ("192.0.2.1", "192.0.2.2")} == {503}


def test_a_port_that_is_taken_is_tried_again_without_a_sync(node: ServedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knft.serve.service_health.RETRY_SECONDS", 0.02)
    with socket.create_server(("0.0.0.0", PORT)):  # noqa: S104 - in a namespace
        node.synced(health_checked("web", PORT))
        servers = node.serving.service_health.servers[Family.IPV4]
        eventually(lambda: servers.failures > 3)
        assert len(node.events) == 2
    eventually(lambda: not refuses(LOOPBACK, PORT))
    assert ask(LOOPBACK, PORT).status == 503


def test_a_service_that_is_closed_meanwhile_answers_nothing(node: ServedNode, caplog: pytest.LogCaptureFixture) -> None:
    """To who connected before: an empty 200, as kube-proxy does."""
    node.synced(health_checked("web", PORT))
    with socket.create_connection((LOOPBACK, PORT), HANG) as connection, caplog.at_level(logging.ERROR, "knft"):
        connection.sendall(b"GET /")
        node.settle()
        node.delete("Service", "web")
        node.synced()
        connection.sendall(b" HTTP/1.0\r\n\r\n")
        answer = parse(connection.recv(1000))
    assert (answer.status, answer.body) == (200, b"")
    assert caplog.messages == ["a health check came for Service default/web, which has none any more"]


def test_failed_syncs_lose_nothing(node: ServedNode) -> None:
    """What changed while syncs failed is served with the first that succeeds, and not before."""
    node.synced()
    for port in node.ports.values():
        port.refuse = port.refuse_reads = 1000
    node.apply(health_checked("web", PORT), *slices("web", [1, 2], local=[1]))
    assert not node.daemon.sync()
    node.settle()
    assert _gone(PORT)
    for port in node.ports.values():
        port.heal()
    node.synced()
    _expect(PORT, "web", 1)


@pytest.fixture
def few_files() -> Iterator[None]:
    """The usual limit of open files, of which a process may allow itself more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_thousands_of_ports_take_no_threads(node: ServedNode) -> None:
    """Each is a file in each family; the limit of open files is raised for them."""
    before = threading.active_count()
    count = 1000
    for number in range(count):
        node.apply(health_checked(f"s{number}", 20_000 + number, number + 1, ports=[{"name": "http", "port": 80}]))
    node.synced(*slices("s999", [1], local=[1]))
    assert threading.active_count() == before
    assert {ask(LOOPBACK, 20_000 + number).status for number in range(0, count - 1, 50)} == {503}
    _expect(20_999, "s999", 1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * count
    node.serving.stop()
    assert _gone(20_999)


def test_a_sync_looks_only_at_what_changed(node: ServedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many Services, with and without health check ports, the HTTP thread is told of one."""
    for number in range(1, 30):
        node.apply(health_checked(f"s{number}", 20_000 + number, number), service(f"plain{number}", 100 + number))
    node.synced()
    seen: list[object] = []
    for servers in node.serving.service_health.servers.values():
        monkeypatch.setattr(servers, "apply", lambda changes: seen.append(sorted(changes.services)))
    node.synced(*slices("plain7", [1], local=[1]))
    assert seen == []
    node.synced(*slices("s7", [1], local=[1]))
    assert seen == [[("default", "s7")]] * 2
