"""Replaced rules are found by their digests; this libnftables lists rules in the expected form."""

import pytest

from knft.config import Config
from knft.families import Family
from knft.nft.codec import rule_digests
from knft.nft.codec.rule_digests import expected_digest
from knft.nft.expressions import Rule
from knft.render import layout
from knft.render.pools import parse_shared_chain, shared_chain
from knft.sync import table_snapshot
from tests.support.history import CONFIGS
from tests.support.kernel_harness import CONFIG, KernelHarness, restarted, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

STICKY = {"sessionAffinity": "ClientIP"}
LOCAL = {"externalTrafficPolicy": "Local"}
MORE_CONFIGS = (
    Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth", masquerade_bit=31),
    Config("node-1", cluster_cidrs=("10.244.0.1/32", "fd00:10:244::1/128"), masquerade_bit=0),
)


def _harness_with_services(namespace: Namespace, config: Config = CONFIG) -> KernelHarness:
    harness = KernelHarness(namespace, config)
    harness.apply(service("web", 7, node_port=30080, **LOCAL), *slices("web", [11, 12, 13], local=[11]))
    harness.sync()  # From here on, new chains are sent before the main phase, as text.
    harness.apply(service("kept", 8, node_port=30081, **STICKY, **LOCAL), *slices("kept", [11, 12, 13], local=[11, 12]))
    harness.apply(service("open", 9, node_port=30082, **STICKY), *slices("open", [11]))
    udp = service("udp", 10, node_port=30083)
    udp["spec"]["ports"][0] |= {"protocol": "UDP"}
    hashed = service("hashed", 11, node_port=30084, **LOCAL)
    hashed["metadata"]["annotations"] = {"knft.dev/load-balancing": "maglev"}
    harness.apply(hashed, *slices("hashed", [11, 12], local=[11]))
    ends = slices("udp", [14])
    for item in ends:
        item["ports"][0]["protocol"] = "UDP"
    harness.apply(udp, *ends)
    harness.sync()
    return harness


def _replace_rules(chain: str, count: int) -> str:
    return "\n".join([f"flush chain ip knft {chain}", *[f"add rule ip knft {chain} accept"] * count])


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("config", [*CONFIGS, *MORE_CONFIGS])
def test_all_rules_are_listed_with_expected_digest(namespace: Namespace, family: Family, config: Config) -> None:
    """If this fails with a new libnftables, ``_normalized`` in knft/nft/codec/rule_digests.py lacks a form."""
    harness = _harness_with_services(namespace, config)
    chains = {chain.name: chain for chain in layout.constant_chains_with_markers(family, config)}
    programmed = harness.proxiers[family]._writer.programmed
    assert programmed is not None
    chains |= programmed.all_contents().chains
    listing = harness.listing(family)
    specs = {name: spec for name in listing.rule_counts if (spec := parse_shared_chain(name)) is not None}
    chains |= {name: shared_chain(spec, family, config) for name, spec in specs.items()}
    assert {name: expected_digest(chain.rules) for name, chain in chains.items()} == listing.rule_digests
    assert len([name for name in chains if "affinity-" in name]) > 5
    assert len([name for name in chains if "maglev-" in name]) == 4


CHAINS = (
    "pool-tcp-1",
    "pool-udp-9",
    "reject-chain",
    "services",
    "masquerading",
    "affinity-10800-nodeport-known-tcp-0",
    "affinity-10800-nodeport-pool-tcp-3",
    "external-affinity-10800-local-nodeport-pool-tcp-2-of-3",
)


@pytest.mark.parametrize("how", ["restart", "audit"])
def test_replaced_rules_are_rewritten(namespace: Namespace, how: str) -> None:
    """Also without a notification, which is lost while knft is down or its buffer overruns."""
    harness = _harness_with_services(namespace)
    before = harness.listing()
    edit = "\n".join(_replace_rules(name, before.rule_counts[name]) for name in CHAINS)
    namespace.run(["nft", "-f", "-"], stdin=edit)
    assert harness.listing().rule_counts == before.rule_counts
    proxier, table = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]
    if how == "restart":
        harness = restarted(harness)
    else:
        assert proxier.audit(table) == len(CHAINS)
    harness.sync()
    assert harness.listing().rule_digests == before.rule_digests
    assert harness.proxiers[Family.IPV4].audit(table) == 0
    last = restarted(harness)
    last.sync()
    assert last.last_transaction().is_empty


def test_digest_of_rewritten_rules_is_accepted_from_unknown_library(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If rewritten rules are listed as before, knft accepts their digest; later changes are still found."""
    harness = _harness_with_services(namespace)
    expected = rule_digests.expected_digest

    def other_form(rules: tuple[Rule, ...]) -> str:
        return expected(rules) + ("" if len(rules) < 3 else "in another form")

    monkeypatch.setattr(table_snapshot, "expected_digest", other_form)
    proxier, table = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]
    assert proxier.audit(table)
    for _ in range(3):
        harness.sync()
        assert proxier.audit(table) == 0
    namespace.run(["nft", "-f", "-"], stdin=_replace_rules("services", harness.listing().rule_counts["services"]))
    assert proxier.audit(table) == 1
