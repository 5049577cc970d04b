"""All forms of rules that knft writes load and are listed unchanged, as text and as JSON, in both families."""

import json

import pytest
from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.nft.expressions import Drop, Goto
from knft.nft.objects import Chain
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import REJECT_CHAIN, TABLE
from knft.render.pools import (
    AffinityPool,
    ExternalClusterChain,
    ExternalLocalChain,
    HashPool,
    PoolChain,
    ResetChain,
    SharedChain,
    shared_chain,
)
from tests.support.kernel_harness import KernelHarness
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

CONFIGS = {
    "defaults": Config("node-1"),
    "pod ranges": Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48")),
    "masquerade all": Config("node-1", masquerade_all=True, masquerade_bit=31),
    "pods by bridge": Config("node-1", detect_local_mode="BridgeInterface", pod_interface="cni0"),
    "pods by prefix": Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth*"),
    "NodePorts everywhere": Config("node-1", nodeport_addresses=("all",)),
    "NodePorts rejected on loopback": Config("node-1", localhost_nodeports=True),
    "INVALID packets dropped": Config("node-1", drop_invalid_packets=True),
}


def _shared_specs() -> list[SharedChain]:
    """Return one shared chain of each form, for each kind of pool."""
    specs: list[SharedChain] = [ResetChain(Drop()), ResetChain(Goto(REJECT_CHAIN))]
    for kind in layout.pool_kinds():
        one, many = PoolChain(kind, 1), PoolChain(kind, 65)
        specs += [one, many, ExternalClusterChain(one), ExternalClusterChain(many)]
        specs += [ExternalLocalChain(many, PoolChain(kind, 0)), ExternalLocalChain(many, one)] if kind.local else []
        affinity = AffinityPool(kind, 65, 60)
        specs += [HashPool(kind, 1021, by_port=True), HashPool(kind, 1021, by_port=False)]
        specs += [*affinity.known_clients(), AffinityPool(kind, 1, 60), affinity, ExternalClusterChain(affinity)]
    return specs


def _chains(family: Family, config: Config) -> tuple[Chain, ...]:
    shared = (shared_chain(spec, family, config) for spec in _shared_specs())
    return (*layout.constant_chains_with_markers(family, config), *shared)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("family", list(Family))
def test_every_rule_loads_and_is_listed(harness: KernelHarness, family: Family, config: Config) -> None:
    """Both ways of listing return all rules of each chain."""
    chains = _chains(family, config)
    table, checked = harness.tables[family], harness.checked_tables[family]
    table.declare(layout.declarations(family, config, hashing=True))
    checked.commit(Transaction(family.nft, TABLE, chains))

    assert {chain.name: len(chain.rules) for chain in chains} == _listed_rules(harness.namespace)
    text = harness.namespace.run(["nft", "list", "ruleset"]).stdout
    # The listed text can be loaded.
    harness.namespace.run(["nft", "-f", "-"], stdin=f"flush ruleset\n{text}")
    assert text == harness.namespace.run(["nft", "list", "ruleset"]).stdout


def _listed_rules(namespace: Namespace) -> dict[str, int]:
    items = json.loads(namespace.run(["nft", "-j", "list", "ruleset"]).stdout)["nftables"]
    counts = {item["chain"]["name"]: 0 for item in items if "chain" in item}
    for item in items:
        if "rule" in item:
            counts[item["rule"]["chain"]] += 1
    return counts


@pytest.mark.parametrize("family", list(Family))
def test_rules_of_another_configuration_are_rewritten_in_place(namespace: Namespace, family: Family) -> None:
    """With another masquerade bit the chains are rewritten, and the elements stay."""
    for config in (Config("node-1"), Config("node-1", masquerade_bit=5)):
        KernelHarness(namespace, config).sync()
        text = namespace.run(["nft", "list", "table", family.nft, TABLE]).stdout
        assert f"{config.masquerade_mark:#010x}" in text
        assert text.count("masquerade fully-random") == 2
        assert text.count("chain rules-") == 1


@pytest.mark.parametrize("family", list(Family))
def test_table_with_other_hooks_is_replaced(
    namespace: Namespace, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by another knft version: the kernel cannot change a chain's priority."""
    with monkeypatch.context() as older:
        name, hook, jumps = layout._HOOKS[-1]
        elsewhere = structs.replace(hook, priority=hook.priority + 7)
        older.setattr(layout, "_HOOKS", (*layout._HOOKS[:-1], (name, elsewhere, jumps)))
        KernelHarness(namespace).sync()
    KernelHarness(namespace).sync()
    text = namespace.run(["nft", "-y", "list", "chain", family.nft, TABLE, name]).stdout
    assert "hook postrouting priority 99; policy accept;" in text
    assert text.count("jump masquerading") == 1


@pytest.mark.parametrize("family", list(Family))
def test_table_without_marker_is_replaced(harness: KernelHarness, family: Family) -> None:
    """A table of knft's name without its marker is replaced in one transaction."""
    nft_family = family.nft
    foreign = f"table {nft_family} knft {{ set cluster-ips {{ type inet_service; elements = {{ 80 }}\n}}\n}}"
    harness.namespace.run(["nft", "-f", "-"], stdin=foreign)
    harness.sync()
    assert set(layout.markers(family, Config("node-1"))) & harness.listing(family).rule_counts.keys()
    fresh = KernelHarness(harness.namespace)
    fresh.sync()
    assert fresh.last_transaction(family).is_empty
