"""Sticky Services with more endpoints than a block: clients keep their endpoint, also when the blocks change."""

import pytest

from knft.render import remembered
from tests.packets.many_clients import HTTP, PODS, STICKY, OutsideClients, clients
from tests.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp
from tests.support.lab import plan

REMAINING_PODS = tuple(pod for pod in PODS if pod != "remote-1")

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize(("version", "protocol"), [(4, "tcp"), (6, "udp")])]


def _block_count(node: ProgrammedNode, version: plan.Version) -> int:
    """Return how many blocks have rules."""
    family = "ip" if version == 4 else "ip6"
    chains = node.namespace.run(["nft", "list", "table", family, "knft"]).stdout.split("chain ")
    return sum("-cluster-known-" in chain.partition("{")[0] and "dnat" in chain for chain in chains)


def test_clients_keep_their_endpoint_when_blocks_change(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks replace the chain of a version without blocks, lose and get an endpoint, and are joined again."""
    sources, sticky = clients(version, 100), service("s", 50, *tcp_and_udp("http", 80), **STICKY)
    node.apply([sticky, endpoints("s", *PODS, http=HTTP)])
    first = outside.servers_of("cluster.50", 80, sources)
    assert _block_count(node, version) == 0

    monkeypatch.setattr(remembered, "BLOCK_SIZE", 1)
    node.restart([])
    assert _block_count(node, version) == len(PODS) * 2
    assert first == outside.servers_of("cluster.50", 80, sources)

    node.apply([endpoints("s", *REMAINING_PODS, http=HTTP)])
    second = outside.servers_of("cluster.50", 80, sources)
    stayed = {client: pod for client, pod in first.items() if pod != "remote-1"}
    assert stayed.items() <= second.items()
    assert set(second.values()) == set(REMAINING_PODS)

    node.apply([endpoints("s", *PODS, http=HTTP)])
    assert second == outside.servers_of("cluster.50", 80, sources)

    monkeypatch.undo()
    node.restart([])
    assert _block_count(node, version) == 0
    assert second == outside.servers_of("cluster.50", 80, sources)


def test_new_clients_reach_all_endpoints_in_blocks(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each endpoint is in a block of its own, and new clients choose a block first; policy Local stays local."""
    monkeypatch.setattr(remembered, "BLOCK_SIZE", 1)
    sticky = service("s", 50, *tcp_and_udp("http", 80, 30050), externalTrafficPolicy="Local", **STICKY)
    for pods in (PODS, tuple(pod for pod in PODS if pod != "local-2"), PODS):  # leaves a gap between the indexes
        node.apply([sticky, endpoints("s", *pods, http=HTTP)])
    listed = node.namespace.run(["nft", "list", "table", "ip" if version == 4 else "ip6", "knft"]).stdout
    assert listed.count("-local-picks {") == listed.count("-cluster-picks {") == 2
    sources = clients(version, 200)
    local = outside.servers_of("node", 30050, sources)
    assert set(local.values()) == {"local-1", "local-2"}
    assert local == outside.servers_of("node", 30050, sources)
    others = clients(version, 400)[200:]
    anywhere = outside.servers_of("cluster.50", 80, others)
    assert set(anywhere.values()) == set(PODS)
    assert anywhere == outside.servers_of("cluster.50", 80, others)
