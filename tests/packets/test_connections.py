"""Established connections go on when rules change, and only a connection's own Service translates its packets."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from tests.support.kernel_harness import CONFIG
from tests.support.lab import plan
from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Answered, Protocol
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import OpenConnection, dial, dial_many
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import VERSIONS, address

HTTP = 8080
OWN_PORT = 8088
"""The port of a server on the node itself."""
SILENCE = 0.15
"""Seconds without an answer after which a packet counts as dropped. Other packets are answered within a few ms."""

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("version", VERSIONS)]


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    """The lab with servers on pods, on the node, and at addresses that no Service has yet."""
    with Responders() as servers:
        for pod in ("local-1", "remote-1"):
            servers.serve(lab.host(pod), HTTP)
        for version in VERSIONS:
            servers.serve(lab.host("node"), OWN_PORT, address=address("node", version))
            for protocol in ("tcp", "udp"):
                servers.serve(lab.host("node"), HTTP, protocol, address("node", version))
            for unknown in ("external.96", "cluster.99"):
                servers.serve(lab.host("remote"), 80, address=address(unknown, version))
        yield lab


def _source_restricted(*ranges: str) -> dict[str, Any]:
    return with_load_balancer(service("guarded", 52, *_http(), loadBalancerSourceRanges=list(ranges)), "$external.52")


def _http(node_port: int = 0) -> list[dict[str, Any]]:
    return tcp_and_udp("http", 80, node_port)


_LOCAL = {"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"}
OBJECTS_BEFORE = [
    service("open", 50, *_http(30050)),
    endpoints("open", "local-1", "remote-1", http=HTTP),
    service("near", 51, *_http(30051), **_LOCAL),
    endpoints("near", "local-1", "remote-1", http=HTTP),
    _source_restricted("$lan", "$node.cidr"),
    endpoints("guarded", "local-1", http=HTTP),
]
OBJECTS_AFTER = [
    endpoints("open", http=HTTP),
    endpoints("near", "remote-1", http=HTTP),
    _source_restricted("$remote/host"),
    # Services without endpoints that get addresses and ports of open connections.
    service("outer", 53, *_http(), externalIPs=["$external.96"]),
    service("inner", 99, *tcp_and_udp("other", 81)),
    service("own", 54, *tcp_and_udp("own", OWN_PORT), externalIPs=["$node"]),
    service("late", 55, *_http(30055)),
]
DESTINATIONS = (
    ("outside", "cluster.50", 80),
    ("local-2", "cluster.50", 80),
    ("node", "cluster.50", 80),
    ("outside", "node", 30050),
    ("node", "node", 30050),
    ("local-2", "cluster.51", 80),
    ("outside", "node", 30051),
    ("outside", "external.52", 80),
    ("local-2", "external.52", 80),
    ("node", "external.52", 80),
    ("outside", "external.96", 80),
    ("node", "external.96", 80),
    ("outside", "cluster.99", 80),
    ("node", "cluster.99", 80),
    ("outside", "node", OWN_PORT),
)


def test_established_connections_survive_changes(served: Lab, version: plan.Version) -> None:
    """Removed endpoints, closed source ranges and new owners of an address affect new connections only."""
    config = msgspec.structs.replace(CONFIG, service_cidrs=())
    with ExitStack() as opened, ProgrammedNode(served, config) as node:
        node.apply(OBJECTS_BEFORE)
        calls = {
            call: OpenConnection(served.host(call[0]), address(call[1], version), call[2]) for call in DESTINATIONS
        }
        # The source port of this client becomes a NodePort of a Service without endpoints.
        from_node_port = OpenConnection(served.host("node"), address("remote-1", version), HTTP, source_port=30055)
        connections = [opened.enter_context(item) for item in (*calls.values(), from_node_port)]
        assert all(connection.echoes(b"before") for connection in connections)
        node.apply(OBJECTS_AFTER)
        assert [call for call, connection in calls.items() if not connection.echoes(b"after")] == []
        assert from_node_port.echoes(b"after")
        for client, to, port in (*DESTINATIONS, ("outside", "node", 30055)):
            outcome = dial(served.host(client), address(to, version), port, timeout=SILENCE)
            assert not isinstance(outcome, Answered), (client, to, port)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_endpoint_that_connects_to_its_own_address_keeps_its_port(
    served: Lab, version: plan.Version, protocol: Protocol
) -> None:
    """An endpoint on the host network: no Service has translated the connection, so it is not masqueraded."""
    own = address("node", version)
    with ProgrammedNode(served) as node:
        node.apply([service("s", 50, *_http()), endpoints("s", "node", http=HTTP)])
        outcome = dial(served.host("node"), own, HTTP, protocol, source=own, source_port=23456)
        assert outcome == Answered("node", own, HTTP, source=own, source_port=23456)


def test_packet_in_flight_during_a_commit_finds_an_endpoint(served: Lab, version: plan.Version) -> None:
    """Its verdict is for two endpoints, but the lookup finds one: the test deletes an element to keep that state."""
    family, cluster_ip = ("ip" if version == 4 else "ip6"), address("cluster.50", version)
    two, near = ("local-1", "node"), service("near", 51, *_http(30051), externalTrafficPolicy="Local")
    with ProgrammedNode(served) as node:
        node.apply([service("open", 50, *_http(30050)), endpoints("open", *two, http=HTTP)])
        node.apply([near, endpoints("near", *two, "remote-1", http=HTTP)])
        for kind, frontend, to, port in (
            ("", f"{cluster_ip} . 80", "cluster.50", 80),
            ("nodeport-", "30050", "node", 30050),
            ("local-nodeport-", "30051", "node", 30051),
        ):
            command = f"delete element {family} knft {kind}endpoints-tcp {{ {frontend} . 1 }}"
            node.namespace.run(["nft", "-f", "-"], stdin=command)
            names = dial_many(served.host("outside"), address(to, version), port, "tcp", 50)
            assert names in ({"local-1": 50}, {"node": 50})


def _load(namespace: Namespace, version: plan.Version, chain: str) -> None:
    family = "ip" if version == 4 else "ip6"
    namespace.run(["nft", "-f", "-"], stdin=f"table {family} other {{\n{chain}\n}}")


@pytest.fixture
def node(served: Lab, version: plan.Version) -> Iterator[ProgrammedNode]:
    """The node with a Service at ``$cluster.50``; the other program's table is deleted at the end."""
    with ProgrammedNode(served) as programmed:
        programmed.apply([service("s", 50, *_http()), endpoints("s", "local-1", http=HTTP)])
        yield programmed
        programmed.namespace.run(["nft", "delete", "table", "ip" if version == 4 else "ip6", "other"])


def test_packet_leaves_without_the_masquerade_mark(node: ProgrammedNode, version: plan.Version) -> None:
    """A mark would masquerade it again when it is routed again, as the inner packet of a tunnel."""
    mark = f"{CONFIG.masquerade_mark:#x}"
    rules = [f"ct status dnat meta mark & {mark} == {value} counter name {name}" for name, value in
             (("marked", mark), ("unmarked", "0"))]  # fmt: skip
    hook = "type filter hook postrouting priority 300;"
    _load(node.namespace, version, "counter marked {}\ncounter unmarked {}\n"
          f"chain c {{ {hook}\n" + "\n".join(rules) + "\n}")  # fmt: skip
    outcome = dial(node.lab.host("outside"), address("cluster.50", version), 80)
    assert isinstance(outcome, Answered)
    assert outcome.source == plan.NODE.gateway.of(version)
    found = json.loads(node.namespace.run(["nft", "-j", "list", "counters"]).stdout)["nftables"]
    packets = {item["counter"]["name"]: item["counter"]["packets"] for item in found if "counter" in item}
    assert packets["marked"] == 0
    assert packets["unmarked"] > 0


def test_knft_masquerades_before_other_programs(node: ProgrammedNode, version: plan.Version) -> None:
    """Another program's snat at the usual priority (100) comes later."""
    lan = plan.NODE.lan.of(version)
    _load(
        node.namespace, version, f"chain c {{ type nat hook postrouting priority 100; ct status dnat snat to {lan}; }}"
    )
    outcome = dial(node.lab.host("outside"), address("cluster.50", version), 80)
    assert isinstance(outcome, Answered)
    assert outcome.source == plan.NODE.gateway.of(version)
    # The other program's rule works: knft does not masquerade a pod's connection.
    outcome = dial(node.lab.host("local-2"), address("cluster.50", version), 80)
    assert isinstance(outcome, Answered)
    assert outcome.source == lan
