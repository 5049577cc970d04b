"""Consistent hashing: the hash of a client determines its endpoint, as computed here without a kernel."""

import re
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from knft.cli.explain_text import format_explanation
from knft.explain.explain import explain
from knft.explain.query import parse_query
from knft.interpret.jhash import hash_slot
from knft.render.hashing import SEED
from knft.render.maglev import maglev_table, table_size
from knft.render.names import HASHED_MAP_PREFIX
from tests.support.explain_sources import of_objects
from tests.support.families import addresses
from tests.support.kernel_harness import CONFIG
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack
from tests.support.lab.outcomes import Answered, Protocol
from tests.support.lab.traffic import dial
from tests.support.packets.hashed_service import REMOTE_NODE, SLICE, hashed
from tests.support.packets.many_clients import HTTP, PODS, STICKY, BackgroundDials, OutsideClients, clients
from tests.support.packets.programmed import ProgrammedNode, endpoints
from tests.support.scenario import VERSIONS, address
from tests.support.traced_cluster import ends, trace

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("protocol", ["tcp", "udp"]),
]

_SETTLED_SECONDS = 10.0

FRONTENDS = (("cluster.50", 80), ("node", 30050), ("external.5", 80), ("external.6", 80))


def expected_server(version: plan.Version, pods: tuple[str, ...], client: str, port: int | None = None) -> str:
    """Return the pod that serves a client; ``port`` is its source port if the hash includes it."""
    targets = {(addresses(pod).of(version), HTTP): pod for pod in pods}
    size = table_size(len(targets))
    parts = [(int(ip_address(client)), 4 if version == 4 else 16), *([(port, 2)] if port is not None else [])]
    return targets[maglev_table(targets, size)[hash_slot(parts, size, SEED)]]


def test_source_hash_determines_the_endpoint_at_all_frontends(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Cluster IP, NodePort, load balancer IP and external IP."""
    node.apply([hashed("source-hash"), SLICE])
    assert _explained_hash(node) == "load balancing  source-hash: by the hash of the client's address"
    listed, sources = _settled_ruleset(node), clients(version, 60)
    expected = {client: expected_server(version, PODS, client) for client in sources}
    assert set(expected.values()) == set(PODS)
    for name, port in FRONTENDS:
        assert expected == outside.servers_of(name, port, sources)
    # Clients need no memory.
    assert listed == _settled_ruleset(node)


def test_maglev_hashes_the_source_port(node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> None:
    """The connections of one client reach all endpoints, those from one port the same one at all frontends."""
    node.apply([hashed("maglev"), SLICE])
    assert _explained_hash(node) == "load balancing  maglev: by the hash of the client's address and port"
    client = clients(version, 1)[0]
    for name, port in FRONTENDS:
        flush_conntrack(node.namespace)
        servers = {
            source_port: _server(node, (address(name, version), port, protocol), client, source_port)
            for source_port in range(20000, 20030)
        }
        assert servers == {number: expected_server(version, PODS, client, number) for number in servers}
        assert set(servers.values()) == set(PODS)


def test_trace_names_the_endpoint_of_a_source_port(
    node: ProgrammedNode, version: plan.Version, protocol: Protocol, tmp_path: Path
) -> None:
    """``knft trace --from-port`` names the endpoint that a packet with the same source address and port reaches."""
    node.apply([hashed("maglev"), SLICE])
    client, capture = clients(version, 1)[0], tmp_path / "nft.json"
    capture.write_text(node.namespace.run(["nft", "-j", "list", "ruleset"]).stdout)
    flags = ("--nft-json", str(capture), "--local-address", address("node", version), "--from", client)
    for name, port in FRONTENDS[:2]:
        target = (address(name, version), port, protocol)
        to = f"{_socket_text(target[0], port)}/{protocol}"
        reached, traced = dict[int, str](), dict[int, str]()
        for source_port in range(21000, 21008):
            outcome = _dial(node, target, client, source_port)
            reached[source_port] = _socket_text(outcome.address, outcome.port)
            (end,) = ends(trace(*flags, "--from-port", str(source_port), "--to", to))
            traced[source_port] = end["endpoint"]
        assert traced == reached
        assert len(set(traced.values())) == len(PODS)


def _explained_hash(node: ProgrammedNode) -> str:
    """Return the line of ``knft explain`` about the hash, from the objects."""
    text = format_explanation(explain(parse_query("s"), of_objects(*node.objects, config=CONFIG)), None)
    return next(line.strip() for line in text.splitlines() if "load balancing" in line)


def _socket_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _server(node: ProgrammedNode, target: tuple[str, int, Protocol], source: str, source_port: int) -> str:
    return _dial(node, target, source, source_port).server


def _dial(node: ProgrammedNode, target: tuple[str, int, Protocol], source: str, source_port: int) -> Answered:
    outcome = dial(node.lab.host("outside"), *target, source=source, source_port=source_port)
    assert isinstance(outcome, Answered), outcome
    return outcome


@pytest.mark.parametrize("load_balancing", ["maglev", "source-hash"])
def test_connections_through_another_node_reach_the_same_endpoint(
    node: ProgrammedNode, version: plan.Version, protocol: Protocol, load_balancing: str
) -> None:
    """The other node has other pods of its own, and gets the endpoints in another order."""
    node.apply([hashed(load_balancing), SLICE])
    client, number = plan.SECOND_OUTSIDE.of(version), FRONTENDS[1][1]
    config = structs.replace(CONFIG, node_name=plan.REMOTE.node_name)
    with ProgrammedNode(node.lab, config, REMOTE_NODE, plan.REMOTE.host) as remote:
        remote.apply([endpoints("s", *reversed(PODS), http=HTTP), hashed(load_balancing)])
        servers = {
            source_port: [
                _server(node, (address(name, version), number, protocol), client, source_port)
                for name in ("node", "remote")
            ]
            for source_port in range(22000, 22020)
        }
    assert all(first == second for first, second in servers.values())
    reached = {first for first, _ in servers.values()}
    assert reached == set(PODS) if load_balancing == "maglev" else len(reached) == 1


def test_policy_local_hashes_to_endpoints_of_this_node(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """External clients reach endpoints on this node; the cluster IP has policy Cluster."""
    node.apply([hashed("source-hash", externalTrafficPolicy="Local"), SLICE])
    sources, local = clients(version, 40), tuple(pod for pod in PODS if pod.startswith("local"))
    for name, port in FRONTENDS[1:]:
        expected = {client: expected_server(version, local, client) for client in sources}
        assert expected == outside.servers_of(name, port, sources)
    expected = {client: expected_server(version, PODS, client) for client in sources}
    assert expected == outside.servers_of(*FRONTENDS[0], sources)


def test_few_clients_move_with_an_endpoint(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Only the clients of a removed endpoint, and few others, move; they return with it, in any order of endpoints."""
    node.apply([hashed("source-hash"), SLICE])
    sources = clients(version, 100)
    before = outside.servers_of(*FRONTENDS[0], sources)
    node.apply([endpoints("s", *PODS[1:], http=HTTP)])
    after = outside.servers_of(*FRONTENDS[0], sources)
    others = [client for client in sources if before[client] != PODS[0]]
    assert sum(before[client] != after[client] for client in others) <= len(others) / 10
    node.apply([endpoints("s", *reversed(PODS), http=HTTP)])
    assert before == outside.servers_of(*FRONTENDS[0], sources)


def test_affinity_takes_precedence(node: ProgrammedNode, outside: OutsideClients, version: plan.Version) -> None:
    """A client with an affinity entry keeps its endpoint, whatever its hash."""
    node.apply([hashed("source-hash", **STICKY), SLICE])
    sources = clients(version, 60)
    first = outside.servers_of(*FRONTENDS[0], sources)
    assert first != {client: expected_server(version, PODS, client) for client in sources}
    assert first == outside.servers_of(*FRONTENDS[1], sources)


def test_restart_changes_nothing(node: ProgrammedNode, outside: OutsideClients, version: plan.Version) -> None:
    """The numbers and tables are the same in a new process."""
    node.apply([hashed("source-hash"), SLICE])
    before = _settled_ruleset(node)
    node.restart([])
    assert before == _settled_ruleset(node)
    # The host's nft lists every slot, of TCP and UDP in both families.
    assert _listed_slots(before) == [table_size(len(PODS))] * 4
    assert set(outside.servers_of(*FRONTENDS[0], clients(version, 20)).values()) == set(PODS)


def _settled_ruleset(node: ProgrammedNode) -> str:
    """Return the listing of all tables; list again until two listings are equal.

    While the kernel resizes the hash table of a map that was just filled, it may list an element twice, or not at all.
    """
    listed, again = "", node.namespace.run(["nft", "list", "ruleset"]).stdout
    deadline = time.monotonic() + _SETTLED_SECONDS
    while listed != again and time.monotonic() < deadline:
        listed, again = again, node.namespace.run(["nft", "list", "ruleset"]).stdout
    return again


def _listed_slots(ruleset: str) -> list[int]:
    """Return how many elements each map of tables of hashes has that is not empty."""
    maps = re.findall(rf"map {HASHED_MAP_PREFIX}\S+ {{(.*?)\n\t}}", ruleset, re.DOTALL)
    return [count for text in maps if (count := text.partition("elements = ")[2].count(" : "))]


@pytest.mark.usefixtures("small_tables")
def test_no_connection_is_lost_while_tables_change(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """The annotation, affinity, the policy and the size of the table change while clients connect."""
    node.apply([hashed(""), SLICE])
    local = endpoints("s", *PODS[:2], http=HTTP)
    with BackgroundDials(outside, *FRONTENDS[1], clients(version, 20000)) as dials:
        for changed in _changes() * 5:
            node.apply([changed, SLICE])
            node.apply([local])
    assert len(dials.answers) > 2 * dials.MARGIN
    assert set(dials.answers.values()) <= set(PODS)


def _changes() -> list[dict[str, Any]]:
    return [
        hashed("maglev"),
        hashed("source-hash"),
        hashed("source-hash", **STICKY),
        hashed("maglev", externalTrafficPolicy="Local"),
        hashed(""),
        hashed("source-hash", externalTrafficPolicy="Local"),
        hashed("", **STICKY),
    ]


def test_rules_and_maps_exist_only_if_a_service_needs_them(
    node: ProgrammedNode, version: plan.Version, protocol: Protocol
) -> None:
    """Without the annotation, the table is as before; the first Service with it adds the maps."""
    node.apply([hashed(""), SLICE])
    assert not list(_hashing_lines(node))
    node.apply([hashed("maglev")])
    assert f"map hashed-endpoints-{protocol} {{" in set(_hashing_lines(node))
    assert f"chain maglev-{protocol}-1021 {{" in set(_hashing_lines(node))
    del version


def _hashing_lines(node: ProgrammedNode) -> Iterator[str]:
    listed = node.namespace.run(["nft", "-t", "list", "ruleset"]).stdout.splitlines()
    return (line.strip() for line in listed if "hash" in line or "maglev" in line)
