"""Shared chains: their names, and which of them are created together."""

import pytest

from knft.render.layout import pool_kinds
from knft.render.pools import (
    COMMON_SIZES,
    MAX_POOL_SIZE,
    AffinityPool,
    ExternalClusterChain,
    ExternalLocalChain,
    HashPool,
    KnownClientsChain,
    PoolChain,
    PoolKind,
    SharedChain,
    hashes_clients,
    parse_shared_chain,
    pool_chain,
    with_common_sizes,
    with_targets,
)

TCP, LOCAL = PoolKind("tcp"), PoolKind("tcp", local=True)


def _hash_chains(kind: PoolKind, size: int) -> list[SharedChain]:
    found: list[SharedChain] = []
    for by_port in (False, True):
        pool = HashPool(kind, size, by_port)
        cluster = HashPool(PoolKind(kind.protocol, kind.nodeport), size, by_port)
        found += [pool, ExternalLocalChain(cluster, pool) if kind.local else ExternalClusterChain(pool)]
    return found


def _chains(kind: PoolKind, size: int, timeout: int) -> list[SharedChain]:
    pool = pool_chain(kind, size, timeout)
    cluster = pool_chain(PoolKind(kind.protocol, kind.nodeport), size, timeout)
    return [pool, ExternalLocalChain(cluster, pool) if kind.local else ExternalClusterChain(pool)]


@pytest.mark.parametrize("size", [0, 1, 10, MAX_POOL_SIZE])
def test_names_of_all_shared_chains_are_parsed(size: int) -> None:
    specs = [spec for kind in pool_kinds() for timeout in (0, 1, 86400) for spec in _chains(kind, size, timeout)]
    specs += [spec for kind in pool_kinds() for spec in _hash_chains(kind, size)]
    assert [parse_shared_chain(spec.name) for spec in specs] == specs
    assert sum(hashes_clients(spec.name) for spec in specs) == 2 * 24
    assert len({spec.name for spec in specs}) == len(specs) == 5 * 24


@pytest.mark.parametrize(
    "name",
    [
        "pool-tcp",
        "pool-tcp-01",
        "pool-tcp--1",
        "pool-tcp-1x",
        "pool-icmp-1",
        f"pool-tcp-{MAX_POOL_SIZE + 1}",
        f"external-local-pool-tcp-1-of-{MAX_POOL_SIZE + 1}",
        "pool-tcp-1-of-2",
        "local-pool-tcp-1-of-2",
        "external-pool-tcp-1-of-2",
        "sticky-1-cluster",
        "affinity-60-maglev-tcp-1021",
        "external-affinity-60-local-source-hash-tcp-1021-of-1021",
        "pool-tcp-\N{ARABIC-INDIC DIGIT ONE}",
        "",
    ],
)
def test_other_names_are_not_parsed(name: str) -> None:
    assert parse_shared_chain(name) is None


def test_target_pools_are_those_that_the_rules_go_to() -> None:
    three, two, none = PoolChain(TCP, 3), PoolChain(LOCAL, 2), PoolChain(LOCAL, 0)
    external, local, drop = ExternalClusterChain(three), ExternalLocalChain(three, two), ExternalLocalChain(three, none)
    assert with_targets(three) == (three,)
    assert with_targets(external) == (external, three)
    assert with_targets(local) == (local, three, two)
    assert with_targets(drop) == (drop, three)


def test_affinity_pool_needs_the_chains_for_known_clients_and_the_pool() -> None:
    cluster, local = AffinityPool(TCP, 5, 60), AffinityPool(LOCAL, 1, 60)
    known = (KnownClientsChain(TCP, 60, 0), KnownClientsChain(TCP, 60, 4))
    of_cluster = (cluster, *known, PoolChain(TCP, 5))
    of_local = (local, KnownClientsChain(LOCAL, 60, 0), PoolChain(LOCAL, 1))
    external, drop = ExternalLocalChain(cluster, local), ExternalLocalChain(cluster, AffinityPool(LOCAL, 0, 60))
    assert with_targets(cluster) == of_cluster
    assert with_targets(ExternalClusterChain(cluster)) == (ExternalClusterChain(cluster), *of_cluster)
    assert with_targets(external) == (external, *of_cluster, *of_local)
    assert with_targets(drop) == (drop, *of_cluster)


def test_first_pools_of_a_kind_bring_the_common_sizes() -> None:
    """A new rule that uses a map walks the whole map, so they are created while the map is small."""
    big, external = PoolChain(TCP, 100), ExternalClusterChain(PoolChain(TCP, 2))
    created = with_common_sizes((big, external), ())
    common = {PoolChain(TCP, size) for size in COMMON_SIZES}
    assert {big, external, *common} == set(created)
    assert sorted(chain.name for chain in created) == [chain.name for chain in created]
    assert (min(COMMON_SIZES), max(COMMON_SIZES)) == (1, 64)


def test_later_pools_of_a_kind_come_alone() -> None:
    big = PoolChain(TCP, 100)
    assert with_common_sizes([big], {"pool-tcp-64"}) == [big]
    assert with_common_sizes([big], {"pool-udp-1", "local-pool-tcp-1", "pool-tcp-65"}) != [big]


def test_policy_chains_alone_bring_no_pools() -> None:
    external = ExternalClusterChain(PoolChain(TCP, 2))
    assert with_common_sizes([external], ()) == [external]


def test_affinity_chains_are_not_created_in_advance() -> None:
    """Common sizes are those of pools: each timeout would need as many chains again."""
    affinity = AffinityPool(TCP, 2, 60)
    created = with_common_sizes(with_targets(affinity), ())
    assert {chain for chain in created if not isinstance(chain, PoolChain)} == {affinity, *affinity.known_clients()}
    assert len(created) == 2 + len(COMMON_SIZES)
