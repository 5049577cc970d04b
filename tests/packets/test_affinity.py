"""Session affinity: one client, one endpoint, across all frontends of a port; and no policy is ever broken for it."""

import time

import pytest

from knft.render import sticky
from tests.packets.many_clients import ADMIN, HTTP, PODS, STICKY, OutsideClients, clients, sticky_for
from tests.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.lab import plan
from tests.support.scenario import VERSIONS

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("protocol", ["tcp", "udp"]),
]


def test_a_client_stays_with_its_endpoint_on_all_frontends(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """By cluster IP, NodePort, load balancer VIP and external IP; and other clients use the other endpoints."""
    ports = tcp_and_udp("http", 80, 30050)
    on_all = with_load_balancer(service("s", 50, *ports, externalIPs=["$external.5"], **STICKY), "$external.6")
    node.apply([on_all, endpoints("s", *PODS, http=HTTP)])
    crowd = clients(version, 60)
    first = outside.servers_of("cluster.50", 80, crowd)
    assert set(first.values()) == set(PODS)
    for name, port in (("cluster.50", 80), ("node", 30050), ("external.5", 80), ("external.6", 80)):
        assert first == outside.servers_of(name, port, crowd)


def test_policy_local_does_not_follow_a_remembered_remote_endpoint(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Clients that the cluster IP has led to remote endpoints are answered locally by the NodePort."""
    ports = tcp_and_udp("http", 80, 30050)
    local = {"externalTrafficPolicy": "Local", **STICKY}
    node.apply([service("s", 50, *ports, **local), endpoints("s", "local-1", "remote-1", "remote-2", http=HTTP)])
    crowd = clients(version, 60)
    remembered = outside.servers_of("cluster.50", 80, crowd)
    assert set(remembered.values()) == {"local-1", "remote-1", "remote-2"}
    assert dict.fromkeys(crowd, "local-1") == outside.servers_of("node", 30050, crowd)
    stayed = outside.servers_of("cluster.50", 80, crowd)
    assert set(stayed.values()) <= {"local-1", "remote-1", "remote-2"}


def test_a_node_port_is_not_another_services_cluster_port(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """The number is the same; the memory is not."""
    one = service("s", 50, *tcp_and_udp("http", 80, 30050), **STICKY)
    other = service("o", 51, *tcp_and_udp("http", 30050), **STICKY)
    node.apply([one, endpoints("s", "local-1", "remote-1", http=HTTP)])
    node.apply([other, endpoints("o", "local-2", "remote-2", http=HTTP)])
    crowd = clients(version, 60)
    mine, others = outside.servers_of("node", 30050, crowd), outside.servers_of("cluster.51", 30050, crowd)
    assert set(mine.values()) == {"local-1", "remote-1"}
    assert set(others.values()) == {"local-2", "remote-2"}
    assert mine == outside.servers_of("node", 30050, crowd)
    assert others == outside.servers_of("cluster.51", 30050, crowd)


def test_two_ports_remember_by_themselves(node: ProgrammedNode, outside: OutsideClients, version: plan.Version) -> None:
    """Two ports with two target ports: each client has an endpoint on each, and not always the same one."""
    ports = [*tcp_and_udp("http", 80), *tcp_and_udp("admin", 81)]
    node.apply([service("s", 50, *ports, **STICKY), endpoints("s", *PODS, http=HTTP, admin=ADMIN)])
    crowd = clients(version, 60)
    http, admin = outside.servers_of("cluster.50", 80, crowd), outside.servers_of("cluster.50", 81, crowd)
    assert http != admin
    assert http == outside.servers_of("cluster.50", 80, crowd)
    assert admin == outside.servers_of("cluster.50", 81, crowd)


def test_a_timeout_that_changes_counts_from_the_next_connection(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Who comes back keeps the endpoint, for a shorter or a longer time from then on; who does not is forgotten."""
    crowd = clients(version, 80)
    back, away = crowd[:40], crowd[40:]

    def remember(shrinking: int, growing: int) -> None:
        for name, number, seconds in (("shrinks", 50, shrinking), ("grows", 51, growing)):
            lasting = service(name, number, *tcp_and_udp("http", 80), **sticky_for(seconds))
            node.apply([lasting, endpoints(name, *PODS, http=HTTP)])

    remember(shrinking=10800, growing=2)
    shrunk, grown = (outside.servers_of(name, 80, crowd) for name in ("cluster.50", "cluster.51"))
    remember(shrinking=1, growing=3600)
    assert shrunk == outside.servers_of("cluster.50", 80, crowd)
    stayed = {client: grown[client] for client in back}
    assert stayed == outside.servers_of("cluster.51", 80, back)
    time.sleep(2.3)
    assert shrunk != outside.servers_of("cluster.50", 80, crowd)
    assert stayed == outside.servers_of("cluster.51", 80, back)
    assert {client: grown[client] for client in away} != outside.servers_of("cluster.51", 80, away)


@pytest.mark.parametrize(("before", "after"), [(10800, 60), (60, 10800)], ids=["shorter", "longer"])
def test_a_timeout_changes_while_an_endpoint_goes(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, before: int, after: int
) -> None:
    """In one sync: clients of other endpoints stay, the rest move once, and do not go back to whoever comes then."""
    ports = tcp_and_udp("http", 80)
    crowd, left = clients(version, 80), [pod for pod in PODS if pod != "remote-1"]
    node.apply([service("s", 50, *ports, **sticky_for(before)), endpoints("s", *PODS, http=HTTP)])
    first = outside.servers_of("cluster.50", 80, crowd)
    assert set(first.values()) == set(PODS)
    node.apply([service("s", 50, *ports, **sticky_for(after)), endpoints("s", *left, http=HTTP)])
    second = outside.servers_of("cluster.50", 80, crowd)
    assert set(second.values()) == set(left)
    assert {client: pod for client, pod in first.items() if pod != "remote-1"}.items() <= second.items()
    assert second == outside.servers_of("cluster.50", 80, crowd)
    node.apply([endpoints("s", *left, "remote-2", "remote-1", http=HTTP)])
    assert second == outside.servers_of("cluster.50", 80, crowd)


def test_a_newcomer_does_not_inherit_the_clients_of_the_one_that_left(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """The timeout is shorter by then, so that it has passed; but it was long when they were remembered."""
    ports = tcp_and_udp("http", 80)
    crowd = clients(version, 200)
    node.apply([service("s", 50, *ports, **STICKY), endpoints("s", "local-1", "local-2", "remote-1", http=HTTP)])
    first = outside.servers_of("cluster.50", 80, crowd)
    node.apply([service("s", 50, *ports, **sticky_for(1)), endpoints("s", "local-1", "local-2", http=HTTP)])
    node.clock_offset += 2
    node.apply([endpoints("s", "local-1", "local-2", "remote-2", http=HTTP)])
    moved = [client for client, pod in first.items() if pod == "remote-1"]
    assert len(moved) > 20
    assert set(outside.servers_of("cluster.50", 80, moved).values()) & {"local-1", "local-2"}


def test_where_nobody_more_can_be_remembered_all_are_served(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full set costs nothing but the affinity: those who are remembered stay, the others wander."""
    monkeypatch.setattr(sticky, "AFFINITY_SIZE", 20)
    node.invalidate()
    node.apply([service("s", 50, *tcp_and_udp("http", 80, 30050), **STICKY), endpoints("s", *PODS, http=HTTP)])
    crowd = clients(version, 200)
    first = outside.servers_of("cluster.50", 80, crowd)
    assert set(first.values()) == set(PODS)
    stayed = set(first.items())
    for _ in range(3):
        for name, port in (("cluster.50", 80), ("node", 30050)):
            answers = outside.servers_of(name, port, crowd)
            assert set(answers.values()) == set(PODS)
            stayed &= set(answers.items())
    assert 20 <= len(stayed) <= 25


def test_affinity_is_switched_on_and_off(node: ProgrammedNode, outside: OutsideClients, version: plan.Version) -> None:
    """Without it clients wander, with it they stay."""
    ports, slices = tcp_and_udp("http", 80), endpoints("s", *PODS, http=HTTP)
    crowd = clients(version, 60)
    for affinity, stays in (({}, False), (STICKY, True), ({}, False), (STICKY, True)):
        node.apply([service("s", 50, *ports, **affinity), slices])
        answers = [outside.servers_of("cluster.50", 80, crowd) for _ in range(2)]
        assert stays == (answers[0] == answers[1])
