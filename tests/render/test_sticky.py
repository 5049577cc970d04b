"""Rules of sticky ports: new clients get each endpoint with the same probability; affinity entries are migrated."""

from fractions import Fraction

import pytest

from knft.config import Config
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.plan import CategorizedEndpoints, Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from knft.nft.expressions import (
    Chance,
    Concat,
    Constant,
    Dnat,
    Jump,
    Match,
    Meta,
    Payload,
    RandomNumber,
    Reference,
    Rule,
    Update,
)
from knft.nft.objects import Chain, ElementTimeout, Key, Target, Value
from knft.render.numbering import Slot, StickyPort
from knft.render.pools import PoolChain, PoolKind
from knft.render.remembered import is_block
from knft.render.sticky import migrate_affinity, sticky_chains, sticky_port_record
from tests.support.kube_objects import port_name

LEFT = 200.0


def _target(index: int) -> Target:
    return (f"10.244.{index // 250}.{index % 250 + 1}", 8080)


def _rules(indexes: set[int], size: int) -> tuple[Rule, ...]:
    """Return the rules of the chain sticky-K-cluster of a port with ``size`` indexes and endpoints at these."""
    return _chains(indexes, size)["sticky-7-cluster"].rules


def _chains(indexes: set[int], size: int) -> dict[str, Chain]:
    endpoints = CategorizedEndpoints(tuple(Endpoint(_target(index)) for index in sorted(indexes)))
    port = ServicePort("10.96.0.1", 80, "TCP", affinity_seconds=60)
    frontend = Frontend(FrontendKind.CLUSTER_IP, "10.96.0.1", "TCP", 80)
    plan = ServicePlan(port_name(), port, endpoints, (frontend,), TrafficAction.CLUSTER, TrafficAction.CLUSTER)
    slots = tuple(Slot(_target(index), None if index in indexes else LEFT) for index in range(size))
    sticky = StickyPort("WEB", "default/web:http", 7, slots, 60)
    pool = PoolChain(PoolKind("tcp"), len(indexes))
    return sticky_chains(plan, sticky, {"cluster": [pool.name]}, Family.IPV4, Config("node-1"))


def _probabilities(rules: tuple[Rule, ...]) -> dict[int, Fraction]:
    """Return the probability with which each index is chosen."""
    chances: dict[int, Fraction] = {}
    left = Fraction(1)
    for rule in rules:
        taken = left
        for statement in rule.statements:
            match statement:
                case Chance(cases, total):
                    taken *= Fraction(cases, total)
                case Update(key=Concat((_, _, RandomNumber(modulus, offset)))):
                    chances |= dict.fromkeys(range(offset, offset + modulus), taken / modulus)
                    left -= taken
    return chances


@pytest.mark.parametrize(
    ("indexes", "picks"),
    [({0}, 1), ({3}, 1), (set(range(10)), 1), ({0, 2}, 2), ({1, 2, 5, 7, 8, 9, 30}, 4), (set(range(0, 100, 3)), 34)],
    ids=str,
)
def test_endpoints_are_equally_likely_despite_gaps(indexes: set[int], picks: int) -> None:
    """First a rule for remembered clients, then one for each range of indexes, and last the pool."""
    rules = _rules(indexes, max(indexes) + 5)
    assert _probabilities(rules) == dict.fromkeys(indexes, Fraction(1, len(indexes)))
    assert len(rules) == 1 + picks + 1


def test_affinity_of_earlier_layouts_is_migrated() -> None:
    memory = ElementTimeout(60, 30)
    memories: dict[str, dict[Key, Value]] = {
        "foreign": {("10.0.0.3", 7, 0): memory},
        "affinity": {
            ("10.0.0.1", 7, 0): memory,
            (80,): memory,
            ("10.0.0.1", 7, 1 << 16): memory,
            ("10.0.0.1", 1 << 16, 0): memory,
            ("10.0.0.1", "7", 0): memory,
        },
        "affinity-3": {("10.0.0.2", 7): memory, ("10.0.0.2",): memory},
    }
    assert migrate_affinity(memories) == {"affinity": {("10.0.0.1", 7, 0): memory, ("10.0.0.2", 7, 3): memory}}


def test_remembered_client_is_matched_renewed_and_translated() -> None:
    """The keys contain the client's address; a rule that always applies needs no chance."""
    (known, *picks, _) = _all_rules({3}, 4)
    client = Payload("ip", "saddr")
    renew = Update("affinity", Concat((client, Constant(7), Constant(3))), 60)
    remembered = Match(renew.key, Reference("affinity"))
    assert known == Rule((remembered, renew, Match(Meta("l4proto"), "tcp"), Dnat("ip", *_target(3))))
    pick = Update("affinity", Concat((client, Constant(7), RandomNumber(1, 3))), 60)
    assert picks == [Rule((Jump("sticky-7-cluster-known"),)), Rule((pick, Jump("sticky-7-cluster-known")))]


def _all_rules(indexes: set[int], size: int) -> list[Rule]:
    """Return the rules of the chains sticky-K-cluster-known and sticky-K-cluster."""
    chains = _chains(indexes, size)
    return [*chains["sticky-7-cluster-known"].rules, *chains["sticky-7-cluster"].rules]


def test_record_describes_the_chains_without_their_blocks() -> None:
    """A restart compares the rules of blocks with those in the kernel."""
    sticky = StickyPort("WEB", "default/web:http", 7, (Slot(_target(0), None),), 60)
    chains = _chains(set(range(400)), 400)
    blocks = [name for name in chains if is_block(name)]
    changed = {name: Chain(name) for name in chains}
    record = sticky_port_record(sticky, chains)
    assert blocks
    assert record == sticky_port_record(sticky, chains | {name: changed[name] for name in blocks})
    assert all(record != sticky_port_record(sticky, chains | {name: changed[name]}) for name in set(chains) - {*blocks})
