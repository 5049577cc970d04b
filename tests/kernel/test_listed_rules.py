"""Rules that somebody has replaced by as many others are found: this library lists rules as they are expected."""

import pytest

from knft.config import Config
from knft.model.names import Family
from knft.nft.codec import listed_rules
from knft.nft.codec.listed_rules import written_rules
from knft.nft.expressions import Rule
from knft.render import layout
from knft.render.pools import parse_shared_chain, shared_chain
from knft.sync import basis
from tests.kernel.harness import CONFIG, KernelHarness, restarted, service, slices
from tests.kernel.history import CONFIGS
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

STICKY = {"sessionAffinity": "ClientIP"}
LOCAL = {"externalTrafficPolicy": "Local"}
MORE_CONFIGS = (
    Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth", masquerade_bit=31),
    Config("node-1", cluster_cidrs=("10.244.0.1/32", "fd00:10:244::1/128"), masquerade_bit=0),
)


def _served(namespace: Namespace, config: Config = CONFIG) -> KernelHarness:
    harness = KernelHarness(namespace, config)
    harness.apply(service("web", 7, node_port=30080, **LOCAL), *slices("web", [11, 12, 13], local=[11]))
    harness.apply(service("kept", 8, node_port=30081, **STICKY, **LOCAL), *slices("kept", [11, 12, 13], local=[11, 12]))
    harness.apply(service("open", 9, node_port=30082, **STICKY), *slices("open", [11]))
    udp = service("udp", 10, node_port=30083)
    udp["spec"]["ports"][0] |= {"protocol": "UDP"}
    ends = slices("udp", [14])
    for item in ends:
        item["ports"][0]["protocol"] = "UDP"
    harness.apply(udp, *ends)
    harness.sync()
    return harness


def _replaced(chain: str, count: int) -> str:
    return "\n".join([f"flush chain ip knft {chain}", *[f"add rule ip knft {chain} accept"] * count])


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("config", [*CONFIGS, *MORE_CONFIGS])
def test_every_rule_is_listed_as_expected(namespace: Namespace, family: Family, config: Config) -> None:
    """Whatever knft is set to; where this fails with a new libnftables, ``_as_listed`` lacks one of its ways."""
    harness = _served(namespace, config)
    chains = {chain.name: chain for chain in layout.skeleton(family, config)}
    programmed = harness.proxiers[family]._committed.programmed
    assert programmed is not None
    chains |= programmed.everything().chains
    listing = harness.held(family)
    specs = {name: spec for name in listing.chains if (spec := parse_shared_chain(name)) is not None}
    chains |= {name: shared_chain(spec, family, config) for name, spec in specs.items()}
    assert {name: written_rules(chain.rules) for name, chain in chains.items()} == listing.rules
    assert len([name for name in chains if name.startswith("sticky-")]) > 5


CHAINS = (
    "pool-tcp-1",
    "pool-udp-9",
    "reject-chain",
    "services",
    "masquerading",
    "sticky-{}-local-known",
    "sticky-{}-local",
)


@pytest.mark.parametrize("how", ["restart", "audit"])
def test_rules_that_somebody_replaced_by_as_many_are_written_again(namespace: Namespace, how: str) -> None:
    """Unheard of, that is while knft is down, or deaf."""
    harness = _served(namespace)
    before = harness.held()
    (number,) = {name.split("-")[1] for name in before.chains if name.endswith("-local") and "sticky" in name}
    chains = [name.format(number) for name in CHAINS]
    edit = "\n".join(_replaced(name, before.chains[name]) for name in chains)
    namespace.run(["nft", "-f", "-"], stdin=edit)
    assert harness.held().chains == before.chains
    proxier, table = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]
    if how == "restart":
        harness = restarted(harness)
    else:
        assert proxier.audit(table) == len(chains)
    harness.sync()
    assert harness.held().rules == before.rules
    assert harness.proxiers[Family.IPV4].audit(table) == 0
    last = restarted(harness)
    last.sync()
    assert last.last().is_empty


def test_a_library_that_lists_rules_in_its_own_way_is_believed_the_second_time(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written again, and is listed as before, is as it should be; what somebody changes is still found."""
    harness = _served(namespace)
    expected = listed_rules.written_rules

    def odd(rules: tuple[Rule, ...]) -> str:
        return expected(rules) + ("" if len(rules) < 3 else "in another way")

    monkeypatch.setattr(basis, "written_rules", odd)
    proxier, table = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]
    assert proxier.audit(table)
    for _ in range(3):
        harness.sync()
        assert proxier.audit(table) == 0
    namespace.run(["nft", "-f", "-"], stdin=_replaced("services", harness.held().chains["services"]))
    assert proxier.audit(table) == 1
