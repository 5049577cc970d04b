"""For random clusters, knft, kube-proxy and the model agree about every packet.

The comparison of knft's and kube-proxy's rules finds only expected differences. Packets to all frontends and near
misses have the outcome that the model predicts in both rule sets. The environment variables ``KNFT_CLUSTERS`` and
``KNFT_CLUSTERS_SEED`` set the number of clusters and the seed.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace

from knft.comparison.compare import compare
from knft.families import IpVersion
from knft.interpret.rules import RuleSet
from knft.proxy_mode import Mode
from tests.interpret.compare.rendered_sides import diff_command, render_cluster, render_optional_features
from tests.interpret.service_model.random_clusters import Cluster, clusters, packets_for
from tests.interpret.service_model.rule_outcomes import MixedOutcomeError, RuleOutcomes
from tests.interpret.service_model.service_model import Mode as ModelMode
from tests.interpret.service_model.service_model import Packet, ServiceModel
from tests.support.differences_in_reports import reasons_in, unexpected_differences
from tests.support.families import VERSIONS
from tests.support.packets.mode_differences import difference_names
from tests.support.property_seed import fixed_seed

EXAMPLES = int(os.environ.get("KNFT_CLUSTERS", "30"))
SEED = int(os.environ.get("KNFT_CLUSTERS_SEED", "1"))
ONLY_IN_CAPTURES = {"forwarding rules"}
"""These differences only occur with rules of other programs."""
ONLY_WITH_FLAGS = {"dropped invalid packets"}
"""These occur with ``--drop-invalid-packets``, which is not drawn: test_expected_differences has them."""
RARE = {
    "external IP that is a cluster IP",
    "any node source address",
    "contested frontend",
    "source ranges without endpoints",
    "source ranges for invalid packets",
    "health check ports",
    "masqueraded node packets",
    "unrejected node packets",
}
"""A small number of clusters may not show these; ``test_expected_differences`` covers all."""


_Rules = Mapping[IpVersion, RuleSet]


def for_clusters(check: Callable[[Cluster], None], every: int = 1) -> None:
    """Run a check for random clusters, or for every ``every``-th of them; shrink a cluster that fails."""
    chosen = settings(
        max_examples=EXAMPLES // every,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=False,
    )
    fixed_seed(SEED)(chosen(given(clusters())(check)))()


@pytest.mark.parametrize("mode", [Mode.IPTABLES, Mode.IPVS])
def test_rules_are_equal_by_outcome(mode: Mode) -> None:
    """There are only expected differences, nothing is undecided, and every expected difference occurs."""
    seen: Counter[str] = Counter()

    def check(cluster: Cluster) -> None:
        report = compare(render_cluster(mode, cluster), lambda _, __: None)
        assert unexpected_differences(report) == [], diff_command(mode, cluster)
        assert report.is_equal, diff_command(mode, cluster)
        seen.update(reasons_in(report))

    # IPVS mode has expected differences for most packets, so its comparison is slow.
    for_clusters(check, 1 if mode is Mode.IPTABLES else 3)
    assert set(seen) >= difference_names(mode.value) - ONLY_IN_CAPTURES - ONLY_WITH_FLAGS - RARE


@pytest.mark.property
def test_kube_proxys_nftables_rules_are_equal_by_outcome() -> None:
    """Only packets to Services with consistent hashing have another outcome."""
    seen: Counter[str] = Counter()

    def check(cluster: Cluster) -> None:
        report = compare(render_cluster(Mode.NFTABLES, cluster), lambda _, __: None)
        assert report.is_equal, diff_command(Mode.NFTABLES, cluster)
        seen.update(reasons_in(report))

    for_clusters(check, 5)
    assert set(seen) == {"consistent hashing"}


@pytest.mark.property
def test_rules_do_what_the_model_says() -> None:
    """For every packet: endpoints with their shares, masquerading, rejection, drop, and session affinity."""
    tried: Counter[str] = Counter()

    def check(cluster: Cluster) -> None:
        packets = list(packets_for(cluster.objects, cluster.settings))
        sides = render_cluster(Mode.IPTABLES, cluster)
        rules: dict[ModelMode, _Rules] = {"nftables": sides.right, "iptables": sides.left}
        wrong = [line for mode, side in rules.items() for line in _deviations(mode, side, cluster, packets)]
        assert wrong == [], diff_command(Mode.IPTABLES, cluster)
        tried.update(packet.origin for packet in packets)

    for_clusters(check)
    assert min(tried.values()) > 100 * EXAMPLES


@pytest.mark.property
def test_rules_of_optional_features_do_what_the_model_says() -> None:
    """Rules that drop INVALID packets and reject packets to loopback addresses do not affect any other packet."""
    rejected: Counter[str] = Counter()

    def check(cluster: Cluster) -> None:
        with_gate = replace(cluster, settings=replace(cluster.settings, loopback_gate=True))
        packets = list(packets_for(cluster.objects, cluster.settings))
        assert _deviations("nftables", render_optional_features(cluster), with_gate, packets) == []
        rejected.update(_rejected_on_loopback(with_gate, packets))

    for_clusters(check)
    assert set(rejected) == {"tcp", "udp", "sctp"}


def _rejected_on_loopback(cluster: Cluster, packets: list[Packet]) -> Iterator[str]:
    """Yield the protocols of packets to loopback addresses that the model rejects."""
    for version in VERSIONS:
        proxy = ServiceModel(cluster.objects, cluster.node, cluster.settings, version, "nftables")
        for packet in packets:
            is_to_loopback = packet.family == version and ip_address(packet.destination).is_loopback
            if is_to_loopback and proxy.outcome(packet).verdict == "rejected":
                yield packet.protocol


def _deviations(mode: ModelMode, side: _Rules, cluster: Cluster, packets: list[Packet]) -> list[str]:
    """Return descriptions of up to three packets whose outcome in a mode's rules differs from the model."""
    found = []
    for version, rules in side.items():
        walked = RuleOutcomes(rules, cluster.settings, packets)
        proxy = ServiceModel(cluster.objects, cluster.node, cluster.settings, version, mode)
        for packet in (packet for packet in packets if packet.family == version):
            expected = proxy.outcome(packet)
            try:
                actual = walked.outcome(packet)
            except MixedOutcomeError as error:
                found.append(f"{mode}: {packet}: {error}")
                continue
            if actual != expected:
                found.append(f"{mode}: {packet}: the model says {expected}, the rules {actual}")
    return found[:3]
