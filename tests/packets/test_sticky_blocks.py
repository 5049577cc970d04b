"""Sticky Services with more endpoints than a block of indexes: clients keep their endpoint, also when that changes."""

from collections.abc import Iterator

import pytest

from knft.render import affinity, fragment, pools
from tests.support.lab import plan
from tests.support.packets.many_clients import HTTP, PODS, STICKY, OutsideClients, clients
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize(("version", "protocol"), [(4, "tcp"), (6, "udp")])]


@pytest.fixture(autouse=True)
def _one_index_in_each_block(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(affinity, "MAX_BLOCK_SIZE", 1)
    _forget_chains()
    yield
    _forget_chains()


def _forget_chains() -> None:
    """Forget the shared chains, which have rules for other indexes."""
    fragment._chains_of.cache_clear()
    pools.shared_chain.cache_clear()


def _block_count(node: ProgrammedNode, version: plan.Version, protocol: str) -> int:
    """Return how many chains have rules for known clients."""
    listed = node.namespace.run(["nft", "list", "chains", "ip" if version == 4 else "ip6"]).stdout.split()
    return sum(word.startswith(f"affinity-10800-known-{protocol}-") for word in listed)


def test_clients_keep_their_endpoint_when_the_number_of_blocks_changes(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version, protocol: str
) -> None:
    """The Service gets, loses and gets back an endpoint in the last block."""
    sources, sticky = clients(version, 100), service("s", 50, *tcp_and_udp("http", 80), **STICKY)
    few, fewer = PODS[:4], tuple(pod for pod in PODS[:4] if pod != PODS[1])
    node.apply([sticky, endpoints("s", *fewer, http=HTTP)])
    first = outside.servers_of("cluster.50", 80, sources)
    assert _block_count(node, version, protocol) == len(fewer)

    node.apply([endpoints("s", *few, http=HTTP)])
    assert _block_count(node, version, protocol) == len(few)
    assert first == outside.servers_of("cluster.50", 80, sources)

    node.apply([endpoints("s", *few[:3], http=HTTP)])
    second = outside.servers_of("cluster.50", 80, sources)
    assert {client: pod for client, pod in first.items() if pod != few[3]}.items() <= second.items()
    assert set(second.values()) == set(few[:3])

    node.apply([endpoints("s", *few, http=HTTP)])
    assert second == outside.servers_of("cluster.50", 80, sources)


def test_new_clients_reach_all_endpoints_in_blocks(
    node: ProgrammedNode, outside: OutsideClients, version: plan.Version
) -> None:
    """Each endpoint is in a block of its own; policy Local stays local."""
    sticky = service("s", 50, *tcp_and_udp("http", 80, 30050), externalTrafficPolicy="Local", **STICKY)
    node.apply([sticky, endpoints("s", *PODS, http=HTTP)])
    sources = clients(version, 200)
    local = outside.servers_of("node", 30050, sources)
    assert set(local.values()) == {"local-1", "local-2"}
    assert local == outside.servers_of("node", 30050, sources)
    others = clients(version, 400)[200:]
    anywhere = outside.servers_of("cluster.50", 80, others)
    assert set(anywhere.values()) == set(PODS)
    assert anywhere == outside.servers_of("cluster.50", 80, others)
