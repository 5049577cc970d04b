"""Shared chains: their names, and which of them are created together."""

import pytest

from knft.render.layout import pool_kinds
from knft.render.pools import (
    COMMON_SIZES,
    MAX_POOL_SIZE,
    ExternalClusterChain,
    ExternalLocalChain,
    PoolChain,
    PoolKind,
    SharedChain,
    parse_shared_chain,
    with_common_sizes,
    with_target_pools,
)

TCP, LOCAL = PoolKind("tcp"), PoolKind("tcp", local=True)


def _chains(kind: PoolKind, size: int) -> list[SharedChain]:
    pool = PoolChain(kind, size)
    cluster = PoolChain(PoolKind(kind.protocol, kind.nodeport), size)
    return [pool, ExternalLocalChain(cluster, pool) if kind.local else ExternalClusterChain(pool)]


@pytest.mark.parametrize("size", [0, 1, 10, MAX_POOL_SIZE])
def test_names_of_all_shared_chains_are_parsed(size: int) -> None:
    specs = [spec for kind in pool_kinds() for spec in _chains(kind, size)]
    assert [parse_shared_chain(spec.name) for spec in specs] == specs
    assert len({spec.name for spec in specs}) == len(specs) == 24


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
        "",
    ],
)
def test_other_names_are_not_parsed(name: str) -> None:
    assert parse_shared_chain(name) is None


def test_target_pools_are_those_that_the_rules_go_to() -> None:
    three, two, none = PoolChain(TCP, 3), PoolChain(LOCAL, 2), PoolChain(LOCAL, 0)
    external, local, drop = ExternalClusterChain(three), ExternalLocalChain(three, two), ExternalLocalChain(three, none)
    assert with_target_pools(three) == (three,)
    assert with_target_pools(external) == (external, three)
    assert with_target_pools(local) == (local, three, two)
    assert with_target_pools(drop) == (drop, three)


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
