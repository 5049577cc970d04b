"""Session affinity: one client, one endpoint, across all frontends of a port; and no policy is ever broken for it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import plan
from tests.lab.links import forget_flows, netlink
from tests.lab.outcomes import Protocol
from tests.lab.responders import Responders
from tests.lab.topology import Lab
from tests.lab.traffic import NOBODY_ANSWERED, dial_each
from tests.packets.programmed import ProgrammedNode, both_protocols, endpoints, service
from tests.packets.scenario import VERSIONS, address

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("protocol", ["tcp", "udp"]),
]

CLIENTS = plan.Addresses("10.250.0.0/16", "fd00:10:250::/112")
PODS = ("local-1", "local-2", "remote-1", "remote-2")
STICKY = {"sessionAffinity": "ClientIP"}
HTTP, ADMIN = 8080, 8081


def _clients(version: plan.Version, count: int) -> list[str]:
    """Return the addresses of that many clients, all of them the outside host's."""
    if version == 4:
        return [f"10.250.{number // 250}.{number % 250 + 1}" for number in range(count)]
    return [f"fd00:10:250::{number + 1:x}" for number in range(count)]


def _timeout(seconds: int) -> dict[str, Any]:
    return STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}


@pytest.fixture(scope="module")
def crowd(lab: Lab) -> Lab:
    """The lab, with an outside host that has 65 000 addresses in each family."""
    outside = lab.host("outside").namespace
    outside.sysctl("net.ipv6.ip_nonlocal_bind", 1)
    with netlink(outside) as link:
        link.own_network(CLIENTS)
    with netlink(lab.host("node").namespace) as link:
        link.add_routes(CLIENTS, plan.OUTSIDE)
    return lab


@pytest.fixture
def node(crowd: Lab) -> Iterator[ProgrammedNode]:
    """The node, with servers on every pod."""
    with Responders() as servers, ProgrammedNode(crowd) as programmed:
        for pod in PODS:
            for port in (HTTP, ADMIN):
                servers.serve(crowd.host(pod), port, "tcp")
                servers.serve(crowd.host(pod), port, "udp")
        yield programmed


class Dialler:
    """The outside host, dialling one frontend in one family and protocol."""

    def __init__(self, node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> None:
        self._host = node.lab.host("outside")
        self._node = node.namespace
        self._version = version
        self._protocol: Protocol = protocol

    def ask(self, name: str, port: int, clients: list[str]) -> dict[str, str]:
        """Return who answers each client at ``$name:port``; each is a new connection, whatever port it comes from."""
        # A flow of UDP outlives the question, and a client may be given the port of an earlier one.
        forget_flows(self._node)
        return dial_each(self._host, address(name, self._version), port, self._protocol, clients)


@pytest.fixture
def outside(node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> Dialler:
    return Dialler(node, version, protocol)


def test_a_client_stays_with_its_endpoint_on_all_frontends(
    node: ProgrammedNode, outside: Dialler, version: plan.Version
) -> None:
    """By cluster IP, NodePort and external IP; and other clients use the other endpoints."""
    ports = both_protocols("http", 80, 30050)
    node.apply([service("s", 50, *ports, externalIPs=["$external.5"], **STICKY), endpoints("s", *PODS, http=HTTP)])
    clients = _clients(version, 60)
    first = outside.ask("cluster.50", 80, clients)
    assert set(first.values()) == set(PODS)
    for name, port in (("cluster.50", 80), ("node", 30050), ("external.5", 80)):
        assert first == outside.ask(name, port, clients)


def test_policy_local_does_not_follow_a_remembered_remote_endpoint(
    node: ProgrammedNode, outside: Dialler, version: plan.Version
) -> None:
    """Clients that the cluster IP has led to remote endpoints are answered locally by the NodePort."""
    ports = both_protocols("http", 80, 30050)
    local = {"externalTrafficPolicy": "Local", **STICKY}
    node.apply([service("s", 50, *ports, **local), endpoints("s", "local-1", "remote-1", "remote-2", http=HTTP)])
    clients = _clients(version, 60)
    remembered = outside.ask("cluster.50", 80, clients)
    assert set(remembered.values()) == {"local-1", "remote-1", "remote-2"}
    assert dict.fromkeys(clients, "local-1") == outside.ask("node", 30050, clients)
    stayed = outside.ask("cluster.50", 80, clients)
    assert set(stayed.values()) <= {"local-1", "remote-1", "remote-2"}


def test_a_node_port_is_not_another_services_cluster_port(
    node: ProgrammedNode, outside: Dialler, version: plan.Version
) -> None:
    """The number is the same; the memory is not."""
    sticky = service("s", 50, *both_protocols("http", 80, 30050), **STICKY)
    other = service("o", 51, *both_protocols("http", 30050), **STICKY)
    node.apply([sticky, endpoints("s", "local-1", "remote-1", http=HTTP)])
    node.apply([other, endpoints("o", "local-2", "remote-2", http=HTTP)])
    clients = _clients(version, 60)
    mine, others = outside.ask("node", 30050, clients), outside.ask("cluster.51", 30050, clients)
    assert set(mine.values()) == {"local-1", "remote-1"}
    assert set(others.values()) == {"local-2", "remote-2"}
    assert mine == outside.ask("node", 30050, clients)
    assert others == outside.ask("cluster.51", 30050, clients)


def test_two_ports_remember_by_themselves(node: ProgrammedNode, outside: Dialler, version: plan.Version) -> None:
    """Two ports with two target ports: each client has an endpoint on each, and not always the same one."""
    ports = [*both_protocols("http", 80), *both_protocols("admin", 81)]
    node.apply([service("s", 50, *ports, **STICKY), endpoints("s", *PODS, http=HTTP, admin=ADMIN)])
    clients = _clients(version, 60)
    http, admin = outside.ask("cluster.50", 80, clients), outside.ask("cluster.50", 81, clients)
    assert http != admin
    assert http == outside.ask("cluster.50", 80, clients)
    assert admin == outside.ask("cluster.50", 81, clients)


def test_a_timeout_that_changes_counts_from_the_next_connection(
    node: ProgrammedNode, outside: Dialler, version: plan.Version
) -> None:
    """Shortened to a second: clients that come back keep their endpoint, and have lost it after a pause."""
    ports, slices = both_protocols("http", 80), endpoints("s", *PODS, http=HTTP)
    clients = _clients(version, 60)
    node.apply([service("s", 50, *ports, **STICKY), slices])
    first = outside.ask("cluster.50", 80, clients)
    node.apply([service("s", 50, *ports, **_timeout(1))])
    assert first == outside.ask("cluster.50", 80, clients)
    time.sleep(1.3)
    assert first != outside.ask("cluster.50", 80, clients)


def test_affinity_is_switched_on_and_off(node: ProgrammedNode, outside: Dialler, version: plan.Version) -> None:
    """Without it clients wander, with it they stay."""
    ports, slices = both_protocols("http", 80), endpoints("s", *PODS, http=HTTP)
    clients = _clients(version, 60)
    for affinity, stays in (({}, False), (STICKY, True), ({}, False), (STICKY, True)):
        node.apply([service("s", 50, *ports, **affinity), slices])
        answers = [outside.ask("cluster.50", 80, clients) for _ in range(2)]
        assert stays == (answers[0] == answers[1])


def test_an_endpoint_goes_with_ten_thousand_remembered_clients(
    node: ProgrammedNode, outside: Dialler, version: plan.Version
) -> None:
    """Some of them just expiring: nothing is refused, those of other endpoints stay, the rest move once."""
    seconds, count = 6.0, 10_000
    ports = both_protocols("http", 80)
    clients = _clients(version, count)
    node.apply([service("s", 50, *ports, **_timeout(int(seconds))), endpoints("s", *PODS, http=HTTP)])
    started = time.monotonic()
    first = outside.ask("cluster.50", 80, clients)
    remembering = time.monotonic() - started
    # The first clients are forgotten about now, the last ones are not.
    time.sleep(max(0.0, seconds - remembering - (time.monotonic() - started - remembering) - remembering / 2))

    node.apply([endpoints("s", *(pod for pod in PODS if pod != "remote-1"), http=HTTP)])
    removed_at = time.monotonic() - started
    second = outside.ask("cluster.50", 80, clients)
    asking = time.monotonic() - started - removed_at
    assert NOBODY_ANSWERED not in second.values()
    assert "remote-1" not in second.values()
    for index, client in enumerate(clients):
        age = removed_at + asking * index / count - remembering * index / count
        if first[client] != "remote-1" and age < seconds - 1:
            assert second[client] == first[client]
    # Only those that were asked last, whom a slow machine has not forgotten meanwhile either.
    latest = clients[-count // 10 :]
    assert outside.ask("cluster.50", 80, latest) == {client: second[client] for client in latest}

    # A newcomer is not given the place of the one that left: nobody is led to it by an old memory.
    node.apply([endpoints("s", "local-1", "local-2", "remote-2", "remote-1", http=HTTP)])
    assert second == {**second, **outside.ask("cluster.50", 80, clients[-100:])}
