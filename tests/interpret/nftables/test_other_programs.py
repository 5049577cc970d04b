"""All rules in tables of other programs and of Service proxies are interpreted."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from ipaddress import IPv4Address
from typing import Any

import pytest

from knft.families import IpVersion
from knft.interpret.nftables import read
from knft.interpret.outcomes import PacketClass, PacketFields
from knft.interpret.rules import DnatMapLookup, Field, InSet, RandomNumber, RuleSet, Verdict, VmapLookup, Within
from knft.interpret.walk.walker import Walker
from tests.bench.cluster import Cluster, ServiceSpec, Shape, numbered_ports
from tests.bench.peers.registry import PEERS
from tests.interpret.nftables.listings import fresh_namespace, listed, unknown
from tests.interpret.nftables.other_programs import OTHER_PROGRAMS
from tests.support.kernel_harness import KernelHarness, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
SHAPE = Shape("small", services=4, endpoints=3, affinity_seconds=0, ranges=2)
STICKY = Shape("sticky", services=2, endpoints=3, affinity_seconds=60)
WIDE = Shape("wide", 2, 3, first_endpoints=5, wide=ServiceSpec(0, (), 60, 2, numbered_ports(3), 2, vip_count=2))
_FIRST_PRIORITIES = (
    ("filter-prerouting-pre-dnat { type filter hook prerouting priority -110",
     "filter-prerouting { type filter hook prerouting priority -110"),
    ("filter-output-pre-dnat { type filter hook output priority -110",
     "filter-output { type filter hook output priority -110"),
    ("filter-input { type filter hook input priority 0", "filter-input { type filter hook input priority -110"),
    ("filter-forward { type filter hook forward priority 0", "filter-forward { type filter hook forward priority -110"),
    ("filter-output { type filter hook output priority 0",
     "filter-output-post-dnat { type filter hook output priority -90"),
    ("rule ip kube-proxy filter-output ", "rule ip kube-proxy filter-output-post-dnat "),
    ("rule ip kube-proxy filter-prerouting-pre-dnat ", "rule ip kube-proxy filter-prerouting "),
    ("rule ip kube-proxy filter-output-pre-dnat ", "rule ip kube-proxy filter-output "),
    (" ip saddr != 10.128.0.0/9 jump mark", " tcp dport 80 ip saddr != 10.128.0.0/9 jump mark"),
)  # fmt: skip


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with fresh_namespace() as made:
        yield made


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", OTHER_PROGRAMS)
def test_table_of_another_program_is_interpreted(namespace: Namespace, name: str, version: IpVersion) -> None:
    """In both families, including TCP flags: a new connection starts with SYN, and no rule matches later flags."""
    assert unknown(read(listed(namespace, OTHER_PROGRAMS[name]), version)) == []


def test_tables_of_other_programs_do_not_interfere(namespace: Namespace) -> None:
    """All tables in one listing, in its order; the bridge and netdev families are ignored."""
    rules = read(listed(namespace, "".join(OTHER_PROGRAMS.values())), 4)
    assert {base.chain.rpartition(" ")[0] for base in rules.base_chains} == {
        "ip docker-bridges", "inet netavark", "inet firewalld", "ip flannel-ipv4", "inet filter",
    }  # fmt: skip
    priorities = {base.chain: base.priority for base in rules.base_chains}
    assert priorities["inet firewalld nat_PREROUTING"] == -90
    assert priorities["ip docker-bridges raw-PREROUTING"] == -300
    assert {base.policy for base in rules.base_chains if base.chain == "inet filter input"} == {"drop"}


def _with_layout_of_1_33(lines: str) -> str:
    """Return the layout of kube-proxy 1.35 with the base chains and the key order of 1.33."""
    for later, first in _FIRST_PRIORITIES:
        lines = lines.replace(later, first)
    return lines


def _unchanged(lines: str) -> str:
    return lines


@pytest.mark.parametrize("shape", [SHAPE, STICKY, WIDE], ids=lambda shape: shape.name)
@pytest.mark.parametrize(("peer", "changed"), [
    ("kube-proxy 1.36", _unchanged), ("kube-proxy 1.35", _unchanged), ("kube-proxy 1.35", _with_layout_of_1_33),
], ids=["1.36", "1.35", "1.33"])  # fmt: skip
def test_kube_proxy_layouts_are_interpreted(
    namespace: Namespace, peer: str, changed: Callable[[str], str], shape: Shape
) -> None:
    """All rules of kube-proxy's table, for each version with a different layout."""
    lines = "\n".join(PEERS[peer].layout().load(Cluster(shape)))
    rules = read(listed(namespace, changed(lines)), 4)
    assert unknown(rules) == []
    assert len(rules.base_chains) == 8
    _check_frontends(rules, shape)


def _check_frontends(rules: RuleSet, shape: Shape) -> None:
    """Each port of a cluster IP leads to an existing chain."""
    frontends = rules.collections["ip kube-proxy service-ips"].elements
    inside = [element for element in frontends if element.key[0] >> 16 == 0x0A60]  # type: ignore[operator]
    assert len(inside) == sum(len(service.ports) for service in Cluster(shape))
    for element in inside:
        assert isinstance(element.value, Verdict)
        assert element.value.chain in rules.chains
        assert element.comment.startswith("bench/service-")


def test_affinity_sets_are_dynamic(namespace: Namespace) -> None:
    """The set of each endpoint is dynamic and has a timeout, although libnftables 1.0.6 does not list it as dynamic."""
    rules = read(listed(namespace, "\n".join(PEERS["kube-proxy 1.36"].layout().load(Cluster(STICKY)))), 4)
    remembering = [found for found in rules.collections.values() if found.is_dynamic]
    assert len(remembering) == 6
    assert {found.seconds for found in remembering} == {60}


@pytest.mark.parametrize("version", [4, 6])
def test_knft_table_is_interpreted(version: IpVersion) -> None:
    """After a sync of plain, policy Local, sticky and source-restricted Services, and of one without endpoints."""
    with fresh_namespace() as own, own.entered():
        harness = KernelHarness(own)
        sticky: dict[str, Any] = {"sessionAffinity": "ClientIP"}
        guarded: dict[str, Any] = {
            "type": "LoadBalancer",
            "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"],
        }
        harness.apply(
            service("plain", 1), *slices("plain", (1, 2, 3), local=(1,)),
            service("node", 2, node_port=30080, externalTrafficPolicy="Local"), *slices("node", (4, 5), local=(4,)),
            service("sticky", 3, **sticky), *slices("sticky", (6, 7)),
            service("guarded", 4, **guarded), *slices("guarded", (8,)),
            service("empty", 5),
        )  # fmt: skip
        harness.sync()
        rules = read(own.run(["nft", "-j", "list", "ruleset"]).stdout, version)
    assert unknown(rules) == []
    family = "ip" if version == 4 else "ip6"
    endpoints = rules.collections[f"{family} knft endpoints-tcp"].elements
    assert {len(element.value) for element in endpoints if isinstance(element.value, tuple)} == {2}
    first, second = rules.chains[f"{family} knft pool-tcp-3"].rules
    assert first.steps == (
        Within(Field.PROTOCOL, ((6, 6),)),
        DnatMapLookup(f"{family} knft endpoints-tcp", (Field.DESTINATION, Field.DESTINATION_PORT, RandomNumber(3))),
    )
    assert second.steps[-1] == DnatMapLookup(
        f"{family} knft endpoints-tcp", (Field.DESTINATION, Field.DESTINATION_PORT, 0)
    )
    asked = [step for chain in rules.chains.values() for rule in chain.rules for step in rule.steps]
    named = {step.collection for step in asked if isinstance(step, VmapLookup | InSet | DnatMapLookup)}
    assert named <= rules.collections.keys()


def test_knft_adds_an_affinity_entry_for_a_new_client() -> None:
    """The entry holds a random index: endpoints are equally likely, even with gaps, and stay selected afterwards."""
    with fresh_namespace() as own, own.entered():
        harness = KernelHarness(own)
        for numbers in ((6, 7, 8, 9), (6, 8, 9)):
            harness.apply(service("sticky", 3, sessionAffinity="ClientIP"), *slices("sticky", numbers))
            harness.sync()
        rules = read(own.run(["nft", "-j", "list", "ruleset"]).stdout, 4)
    client = int(IPv4Address("10.244.9.9"))
    packets = PacketClass(
        "network",
        6,
        int(IPv4Address("10.96.0.3")),
        is_local=False,
        fields=PacketFields(((80, 80),), ((client, client),)),
    )
    walker = Walker(rules)
    paths = [path for path in walker.paths(packets) if path.outcome.is_translated]
    assert {path.outcome.address: path.share for path in paths} == {
        int(IPv4Address(f"10.244.2.{number}")): Fraction(1, 3) for number in (6, 8, 9)
    }
    for path in paths:
        (again,) = [kept for kept in walker.paths(packets, path.written_entries) if kept.outcome.is_translated]
        assert again.outcome == path.outcome
        assert again.outcome.seconds == 10800
