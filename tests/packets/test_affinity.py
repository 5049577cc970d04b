"""Session affinity: a client keeps its endpoint at all frontends of a Service port, unless a policy forbids it."""

import json

import pytest

from knft.render import affinity
from knft.render.names import CLIENTS
from tests.support.lab import plan
from tests.support.packets.many_clients import ADMIN, HTTP, PODS, STICKY, OutsideClients, clients, sticky_for
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import VERSIONS
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("protocol", ["tcp", "udp"]),
]


def test_client_keeps_its_endpoint_at_all_frontends(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Cluster IP, NodePort, load balancer IP and external IP; different clients reach different endpoints."""
    ports = tcp_and_udp("http", 80, 30050)
    on_all = with_load_balancer(service("s", 50, *ports, externalIPs=["$external.5"], **STICKY), "$external.6")
    node.apply([on_all, endpoints("s", *PODS, http=HTTP)])
    sources = clients(version, 60)
    first = outside.servers_of("cluster.50", 80, sources)
    assert set(first.values()) == set(PODS)
    for name, port in (("cluster.50", 80), ("node", 30050), ("external.5", 80), ("external.6", 80)):
        assert first == outside.servers_of(name, port, sources)


def test_policy_local_ignores_a_remembered_remote_endpoint(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Clients that have a remote endpoint by the cluster IP are answered by the local one at the NodePort."""
    ports = tcp_and_udp("http", 80, 30050)
    local = {"externalTrafficPolicy": "Local", **STICKY}
    node.apply([service("s", 50, *ports, **local), endpoints("s", "local-1", "remote-1", "remote-2", http=HTTP)])
    sources = clients(version, 60)
    remembered = outside.servers_of("cluster.50", 80, sources)
    assert set(remembered.values()) == {"local-1", "remote-1", "remote-2"}
    assert dict.fromkeys(sources, "local-1") == outside.servers_of("node", 30050, sources)
    stayed = outside.servers_of("cluster.50", 80, sources)
    assert set(stayed.values()) <= {"local-1", "remote-1", "remote-2"}


def test_node_port_and_equal_cluster_port_are_remembered_separately(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """The NodePort of one Service is the port of another Service's cluster IP."""
    one = service("s", 50, *tcp_and_udp("http", 80, 30050), **STICKY)
    other = service("o", 51, *tcp_and_udp("http", 30050), **STICKY)
    node.apply([one, endpoints("s", "local-1", "remote-1", http=HTTP)])
    node.apply([other, endpoints("o", "local-2", "remote-2", http=HTTP)])
    sources = clients(version, 60)
    mine, others = outside.servers_of("node", 30050, sources), outside.servers_of("cluster.51", 30050, sources)
    assert set(mine.values()) == {"local-1", "remote-1"}
    assert set(others.values()) == {"local-2", "remote-2"}
    assert mine == outside.servers_of("node", 30050, sources)
    assert others == outside.servers_of("cluster.51", 30050, sources)


def test_two_ports_are_remembered_separately(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """A client has an endpoint at each port of a Service, which may be two different ones."""
    ports = [*tcp_and_udp("http", 80), *tcp_and_udp("admin", 81)]
    node.apply([service("s", 50, *ports, **STICKY), endpoints("s", *PODS, http=HTTP, admin=ADMIN)])
    sources = clients(version, 60)
    http, admin = outside.servers_of("cluster.50", 80, sources), outside.servers_of("cluster.50", 81, sources)
    assert http != admin
    assert http == outside.servers_of("cluster.50", 80, sources)
    assert admin == outside.servers_of("cluster.50", 81, sources)


def test_changed_timeout_applies_from_the_next_connection(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """A client that connects again keeps its endpoint for the new timeout, another one for the old timeout."""
    sources = clients(version, 80)
    back, away = sources[:40], sources[40:]

    def remember(shrinking: int, growing: int) -> None:
        for name, number, seconds in (("shrinks", 50, shrinking), ("grows", 51, growing)):
            lasting = service(name, number, *tcp_and_udp("http", 80), **sticky_for(seconds))
            node.apply([lasting, endpoints(name, *PODS, http=HTTP)])

    # Long enough to connect from ``back`` in time on a busy machine.
    remember(shrinking=10800, growing=8)
    shrunk, grown = (outside.servers_of(name, 80, sources) for name in ("cluster.50", "cluster.51"))
    remember(shrinking=1, growing=3600)
    assert shrunk == outside.servers_of("cluster.50", 80, sources)
    stayed = {client: grown[client] for client in back}
    assert stayed == outside.servers_of("cluster.51", 80, back)
    wait_until(lambda: _remembered(node, version) <= len(back), "clients are remembered too long", interval=0.1)
    assert shrunk != outside.servers_of("cluster.50", 80, sources)
    assert stayed == outside.servers_of("cluster.51", 80, back)
    assert {client: grown[client] for client in away} != outside.servers_of("cluster.51", 80, away)


def _remembered(node: ProgrammedNode, version: plan.Version) -> int:
    """Return how many pairs of client and Service port are remembered."""
    command = ["nft", "-j", "list", "set", "ip" if version == 4 else "ip6", "knft", CLIENTS]
    (listed,) = (item["set"] for item in json.loads(node.namespace.run(command).stdout)["nftables"] if "set" in item)
    return len(listed.get("elem", []))


@pytest.mark.parametrize(("before", "after"), [(10800, 60), (60, 10800)], ids=["shorter", "longer"])
def test_timeout_can_change_while_an_endpoint_is_removed(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, before: int, after: int
) -> None:
    """One sync does both: clients of other endpoints stay, the rest move once, and not to the added endpoint."""
    ports = tcp_and_udp("http", 80)
    sources, left = clients(version, 80), [pod for pod in PODS if pod != "remote-1"]
    node.apply([service("s", 50, *ports, **sticky_for(before)), endpoints("s", *PODS, http=HTTP)])
    first = outside.servers_of("cluster.50", 80, sources)
    assert set(first.values()) == set(PODS)
    node.apply([service("s", 50, *ports, **sticky_for(after)), endpoints("s", *left, http=HTTP)])
    second = outside.servers_of("cluster.50", 80, sources)
    assert set(second.values()) == set(left)
    assert {client: pod for client, pod in first.items() if pod != "remote-1"}.items() <= second.items()
    assert second == outside.servers_of("cluster.50", 80, sources)
    node.apply([endpoints("s", *left, "remote-2", "remote-1", http=HTTP)])
    assert second == outside.servers_of("cluster.50", 80, sources)


def test_new_endpoint_does_not_get_the_clients_of_a_removed_one(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """The timeout was long when the clients were remembered, and is shorter when the new endpoint is added."""
    ports = tcp_and_udp("http", 80)
    sources = clients(version, 200)
    node.apply([service("s", 50, *ports, **STICKY), endpoints("s", "local-1", "local-2", "remote-1", http=HTTP)])
    first = outside.servers_of("cluster.50", 80, sources)
    node.apply([service("s", 50, *ports, **sticky_for(1)), endpoints("s", "local-1", "local-2", http=HTTP)])
    node.clock_offset += 2
    node.apply([endpoints("s", "local-1", "local-2", "remote-2", http=HTTP)])
    moved = [client for client, pod in first.items() if pod == "remote-1"]
    assert len(moved) > 20
    assert set(outside.servers_of("cluster.50", 80, moved).values()) & {"local-1", "local-2"}


def test_clients_are_served_when_the_affinity_set_is_full(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients in the set keep their endpoint; the others reach any endpoint."""
    monkeypatch.setattr(affinity, "MAX_CLIENTS", 20)
    # A set of another size is kept, so the tables are created again.
    node.namespace.run(["nft", "-f", "-"], stdin="delete table ip knft\ndelete table ip6 knft\n")
    node.invalidate()
    node.apply([service("s", 50, *tcp_and_udp("http", 80, 30050), **STICKY), endpoints("s", *PODS, http=HTTP)])
    sources = clients(version, 200)
    first = outside.servers_of("cluster.50", 80, sources)
    assert set(first.values()) == set(PODS)
    stayed = set(first.items())
    for _ in range(3):
        for name, port in (("cluster.50", 80), ("node", 30050)):
            answers = outside.servers_of(name, port, sources)
            assert set(answers.values()) == set(PODS)
            stayed &= set(answers.items())
    assert 20 <= len(stayed) <= 25


def test_affinity_can_be_switched_on_and_off(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Clients reach any endpoint without affinity, and keep theirs with it."""
    ports, slices = tcp_and_udp("http", 80), endpoints("s", *PODS, http=HTTP)
    sources = clients(version, 60)
    for settings, stays in (({}, False), (STICKY, True), ({}, False), (STICKY, True)):
        node.apply([service("s", 50, *ports, **settings), slices])
        answers = [outside.servers_of("cluster.50", 80, sources) for _ in range(2)]
        assert stays == (answers[0] == answers[1])
