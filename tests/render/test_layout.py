"""The whole table, as ``knft render`` prints it."""

from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.nft.expressions import Drop, Goto, Jump, Rule
from knft.nft.objects import Chain, Entry, Hook, Key, Value
from knft.nft.transaction import Transaction
from knft.render.layout import (
    _shared_chain_samples,
    declarations,
    is_marker,
    markers,
    whole_table,
    without_unreachable_chains,
)

HOOK = Hook("filter", "input", 0)


def _chain(name: str, *targets: str, hook: Hook | None = None) -> Chain:
    return Chain(name, tuple(Rule((Jump(target),)) for target in targets) or (Rule((Drop(),)),), hook)


def test_unreachable_chains_are_left_out() -> None:
    chains = (
        _chain("base", "called", "shared", hook=HOOK),
        _chain("called", "deep"),
        _chain("deep", "shared"),
        _chain("shared"),
        _chain("from an element", "from its chain"),
        _chain("from its chain"),
        _chain("jumped to by an element"),
        _chain("unreachable", "from an unreachable chain"),
        _chain("from an unreachable chain"),
        Chain("marker"),
    )
    added: dict[str, dict[Key, Value]] = {
        "service-ips": {
            ("a",): Entry(Goto("from an element")),
            ("b",): Entry(Jump("jumped to by an element")),
            ("c",): Entry(Drop()),
        },
        "cluster-ips": {("d",): None},
        "endpoints-tcp": {("e", 0): ("10.244.0.1", 80)},
    }
    table = whole_table(declarations(Family.IPV4), Transaction("ip", "knft", chains[1:], chains[:1], added=added))
    kept = [chain.name for chain in without_unreachable_chains(table).chains]
    assert kept == [chain.name for chain in chains if "unreachable" not in chain.name]


def test_whole_table_has_sorted_elements_and_those_that_rules_have_added() -> None:
    transaction = Transaction("ip", "knft", added={"cluster-ips": {("b",): None, ("a",): None}})
    table = whole_table(declarations(Family.IPV4), transaction, {"affinity-clients": {("c",): None}})
    assert {name: list(found) for name, found in table.elements.items()} == {
        "affinity-clients": [("c",)],
        "cluster-ips": [("a",), ("b",)],
    }
    assert table.containers == declarations(Family.IPV4).containers


def test_rules_marker_changes_with_the_rules_only() -> None:
    """Processes with equal rules leave each other's table as it is."""
    config = Config("node-1", cluster_cidrs=("10.244.0.0/16",))
    others = [structs.replace(config, masquerade_bit=7), structs.replace(config, masquerade_all=True)]
    found = {markers(family, each)[1] for each in (config, *others) for family in Family}
    assert len(found) == 6
    assert markers(Family.IPV4, config) == markers(Family.IPV4, structs.replace(config, node_name="node-2"))
    assert all(len(name) == len("rules-") + 8 for name in found)
    assert all(is_marker(name) for family in Family for name in markers(family, config))
    assert not is_marker("services")


def test_rules_marker_covers_each_form_of_shared_chain() -> None:
    """Rules depend on the kind of pool, and on whether there are several endpoints, one or none."""
    names = {spec.name for spec in _shared_chain_samples()}
    tcp = {name for name in names if "-tcp-" in name and "nodeport" not in name}
    assert tcp == {
        *("pool-tcp-1", "pool-tcp-2", "local-pool-tcp-1", "local-pool-tcp-2"),
        *("external-pool-tcp-1", "external-pool-tcp-2"),
        *("external-local-pool-tcp-0-of-2", "external-local-pool-tcp-1-of-2"),
        *("affinity-1-pool-tcp-1", "affinity-1-pool-tcp-2", "affinity-1-known-tcp-0"),
        *("affinity-1-local-pool-tcp-1", "affinity-1-local-pool-tcp-2", "affinity-1-local-known-tcp-0"),
    }
    assert len(names) == 6 * len(tcp)
