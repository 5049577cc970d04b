"""Rules of session affinity as nft text, the blocks of indexes, and the names of the chains."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knft.config import Config
from knft.families import Family
from knft.nft import expressions as nft
from knft.nft.codec.statements import statement_text
from knft.nft.codec.tables import declarations_text
from knft.nft.objects import Chain, Table
from knft.render import pools
from knft.render.affinity import (
    MAX_BLOCK_SIZE,
    EndpointLookup,
    affinity_rules,
    block_end,
    block_starts,
    clients_set,
    known_rules,
)
from knft.render.layout import pool_kinds
from knft.render.pools import (
    MAX_POOL_SIZE,
    AffinityPool,
    ExternalClusterChain,
    ExternalLocalChain,
    KnownClientsChain,
    PoolChain,
    PoolKind,
    SharedChain,
    affinity_timeout,
    parse_shared_chain,
    shared_chain,
)

CONFIG = Config("node-1")
TCP, LOCAL = PoolKind("tcp"), PoolKind("tcp", local=True)
LOCAL_NODEPORT = PoolKind("udp", nodeport=True, local=True)


def _texts(chain: Chain) -> list[list[str]]:
    """Return the statements of each rule as nft text."""
    return [[statement_text(statement) for statement in rule.statements] for rule in chain.rules]


def _known(family: str, frontend: str, kind: str, index: int, timeout: int) -> list[str]:
    key = f"{frontend} . numgen random mod 1 offset {index}"
    local = "local-nodeport-" if kind == "udp" else ""
    return [
        f"meta priority set {key} map @{local}endpoint-ids-{kind}",
        f"{family} saddr . meta priority @affinity-clients",
        f"update @affinity-clients {{ {family} saddr . meta priority timeout {timeout}s }}",
        "meta priority set none",
        f"dnat {family} to {key} map @{local}endpoints-{kind}",
    ]


@pytest.mark.parametrize("family", list(Family))
def test_known_client_is_renewed_and_translated(family: Family) -> None:
    """A rule for each index of the block; an index without an endpoint has no ID, which ends the rule."""
    name = family.nft
    of_address = shared_chain(KnownClientsChain(TCP, 10800, 4), family, CONFIG)
    assert (of_address.name, of_address.hook) == ("affinity-10800-known-tcp-4", None)
    assert _texts(of_address) == [
        _known(name, f"{name} daddr . tcp dport", "tcp", index, 10800) for index in range(4, 8)
    ]
    of_nodeport = shared_chain(KnownClientsChain(LOCAL_NODEPORT, 60, 0), family, CONFIG)
    assert of_nodeport.name == "affinity-60-local-nodeport-known-udp-0"
    assert _texts(of_nodeport) == [_known(name, "udp dport", "udp", index, 60) for index in range(4)]


@pytest.mark.parametrize("family", list(Family))
def test_new_client_is_remembered_and_then_known(family: Family) -> None:
    """If the set is full, the client continues in the pool without affinity, and without a priority."""
    name = family.nft
    remember = f"update @affinity-clients {{ {name} saddr . meta priority timeout 10800s }}"
    jumps = [["jump affinity-10800-known-tcp-0"], ["jump affinity-10800-known-tcp-4"]]
    key = f"{name} daddr . tcp dport . numgen random mod 5"
    chain = shared_chain(AffinityPool(TCP, 5, 10800), family, CONFIG)
    assert chain.name == "affinity-10800-pool-tcp-5"
    assert _texts(chain) == [
        *jumps,
        [f"meta priority set {key} map @endpoint-ids-tcp", remember],
        *jumps,
        ["meta priority set none", "goto pool-tcp-5"],
    ]


@pytest.mark.parametrize("family", list(Family))
def test_new_client_of_a_nodeport_with_one_endpoint(family: Family) -> None:
    name = family.nft
    chain = shared_chain(AffinityPool(LOCAL_NODEPORT, 1, 60), family, CONFIG)
    jump = ["jump affinity-60-local-nodeport-known-udp-0"]
    assert _texts(chain) == [
        jump,
        [
            "meta priority set udp dport . numgen random mod 1 map @local-nodeport-endpoint-ids-udp",
            f"update @affinity-clients {{ {name} saddr . meta priority timeout 60s }}",
        ],
        jump,
        ["meta priority set none", "goto local-nodeport-pool-udp-1"],
    ]


def test_policy_chains_lead_to_the_affinity_pools() -> None:
    cluster, local = AffinityPool(TCP, 3, 60), AffinityPool(LOCAL, 2, 60)
    external = shared_chain(ExternalClusterChain(cluster), Family.IPV4, CONFIG)
    assert external.target_chains() == ("affinity-60-pool-tcp-3",)
    of_local = shared_chain(ExternalLocalChain(cluster, local), Family.IPV4, CONFIG)
    assert of_local.target_chains() == (cluster.name, cluster.name, "affinity-60-local-pool-tcp-2")
    drop = shared_chain(ExternalLocalChain(cluster, AffinityPool(LOCAL, 0, 60)), Family.IPV4, CONFIG)
    assert drop.target_chains() == (cluster.name, cluster.name)


def test_conditions_precede_the_rules_that_translate() -> None:
    """Of a wide Service port, for example: libnftables needs the protocol to translate the port."""
    lookup = EndpointLookup("ip", (nft.Constant(5),), "e", "i", (nft.Match(nft.Meta("x"), "y"),))
    (known,) = known_rules(lookup, range(1), 60)
    assert known.statements[0] == lookup.conditions[0]
    assert not any(lookup.conditions[0] in rule.statements for rule in affinity_rules(lookup, 3, 60, ["known"]))


@pytest.mark.parametrize("family", list(Family))
def test_clients_are_in_one_set(family: Family) -> None:
    text = declarations_text(Table(family.nft, "knft", "", (clients_set(family),), (), {}))
    assert text.splitlines()[2:] == [
        "\tset affinity-clients {",
        f"\t\ttypeof {family.nft} saddr . meta priority",
        "\t\tsize 4194304",
        "\t\tflags dynamic,timeout",
        '\t\tcomment "clients with session affinity, and the IDs of their endpoints"',
        "\t}",
        "}",
    ]


@pytest.mark.parametrize(
    ("size", "starts"),
    [
        (0, []),
        (1, [0]),
        (4, [0]),
        (5, [0, 4]),
        (8, [0, 4]),
        (9, [0, 4, 8]),
        (64, [0, 4, 8, 16, 32]),
        (65, [0, 4, 8, 16, 32, 64]),
        (129, [0, 4, 8, 16, 32, 64, 128]),
        (300, [0, 4, 8, 16, 32, 64, 128, 192, 256]),
    ],
)
def test_blocks_of_indexes(size: int, starts: list[int]) -> None:
    assert list(block_starts(size)) == starts
    known = AffinityPool(TCP, size, 60).known_clients()
    assert known == tuple(KnownClientsChain(TCP, 60, start) for start in starts)


@pytest.mark.property
@given(st.integers(1, MAX_POOL_SIZE))
@example(MAX_POOL_SIZE)
def test_blocks_contain_each_index_once(size: int) -> None:
    """And no block is empty, or has more rules than its beginning or the largest block."""
    starts = list(block_starts(size))
    assert starts[0] == 0
    assert all(block_end(start) == following for start, following in pairwise(starts))
    assert starts[-1] < size <= block_end(starts[-1])
    assert all(block_end(start) - start <= MAX_BLOCK_SIZE for start in starts)


def test_blocks_of_a_larger_pool_begin_with_those_of_a_smaller_one() -> None:
    """So scaling a Service reuses the chains of known clients."""
    large = list(block_starts(1000))
    for size in range(1, 1000):
        small = list(block_starts(size))
        assert large[: len(small)] == small


@pytest.mark.parametrize("kind", pool_kinds())
def test_names_of_chains_for_known_clients_are_parsed(kind: PoolKind) -> None:
    chains = [
        KnownClientsChain(kind, timeout, start) for timeout in (1, 86400) for start in block_starts(MAX_POOL_SIZE)
    ]
    assert [parse_shared_chain(chain.name) for chain in chains] == chains


@pytest.mark.parametrize(
    "name",
    [
        *("affinity-0-pool-tcp-1", "affinity-01-pool-tcp-1", "affinity-100000-pool-tcp-1", "affinity--pool-tcp-1"),
        *("affinity-pool-tcp-1", "affinity-60-pool-tcp-01", f"affinity-60-pool-tcp-{MAX_POOL_SIZE + 1}"),
        *("affinity-60-external-pool-tcp-1", "affinity-60-pool-icmp-1", "affinity-60-pool-tcp-1-of-2"),
        *("external-affinity-60-pool-tcp-1-of-2", "local-affinity-60-pool-tcp-1"),
        *("known-tcp-0", "affinity-0-known-tcp-0", "affinity-60-known-tcp-3", "affinity-60-known-tcp-5"),
        *("affinity-60-known-tcp-96", "affinity-60-known-tcp-0-of-1", "external-affinity-60-known-tcp-0"),
        *("external-affinity-60-local-known-tcp-0-of-1", f"affinity-60-known-tcp-{MAX_POOL_SIZE}"),
        *("affinity-60-known-tcp-", "affinity-60-nodeport-local-known-tcp-0", "affinity-clients"),
    ],
)
def test_other_names_are_not_parsed(name: str) -> None:
    assert parse_shared_chain(name) is None


_sizes, _timeouts = st.integers(0, MAX_POOL_SIZE), st.integers(1, 86400)
_kinds = st.sampled_from(pool_kinds())
_known_chains = st.builds(KnownClientsChain, _kinds, _timeouts, st.sampled_from(list(block_starts(MAX_POOL_SIZE))))
_pools = st.one_of(st.builds(PoolChain, _kinds, _sizes), st.builds(AffinityPool, _kinds, _sizes, _timeouts))


@st.composite
def _local_chains(draw: st.DrawFn) -> ExternalLocalChain:
    pool, size = draw(_pools.filter(lambda pool: pool.kind.local)), draw(_sizes)
    kind = PoolKind(pool.kind.protocol, pool.kind.nodeport)
    return ExternalLocalChain(pools.pool_chain(kind, size, affinity_timeout(pool)), pool)


@pytest.mark.property
@given(st.one_of(_known_chains, _pools, st.builds(ExternalClusterChain, _pools), _local_chains()))
def test_names_of_all_chains_are_parsed(chain: SharedChain) -> None:
    parsed = parse_shared_chain(chain.name)
    assert parsed == chain
    assert parsed is not None
    assert affinity_timeout(parsed) == affinity_timeout(chain)
    assert (affinity_timeout(chain) > 0) == ("affinity-" in chain.name)


@pytest.mark.property
@given(st.from_regex(pools._NAME, fullmatch=True))
def test_parsed_chain_has_the_name(name: str) -> None:
    """Of all names that look like one: no two names describe the same chain."""
    parsed = parse_shared_chain(name)
    assert parsed is None or parsed.name == name


@pytest.mark.property
@given(st.one_of(_known_chains, _pools), st.sampled_from(list(Family)))
def test_jumps_lead_to_the_chains_of_the_same_timeout(chain: KnownClientsChain | PoolChain, family: Family) -> None:
    """And all keys are of the same kind of pool."""
    rendered = shared_chain(chain, family, CONFIG)
    targets = {parse_shared_chain(name) for name in rendered.target_chains()}
    assert targets == ({*pools.with_targets(chain)} - {chain})
    maps = set(re.findall(r"map @(\S+)", " ".join(text for rule in _texts(rendered) for text in rule)))
    assert maps <= {chain.kind.map, chain.kind.ids_map}
