"""Random clusters are covered by the model, and their packets show all outcomes and all expected differences."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.interpret.service_model.random_clusters import Cluster, clusters, packets_for
from tests.interpret.service_model.service_model import LOOPBACK, Mode, Outcome, Packet, ServiceModel
from tests.support.packets.mode_differences import difference_names
from tests.support.property_seed import fixed_seed
from tests.support.service_manifests import Family, addresses, networks, within

MODES: tuple[Mode, ...] = get_args(Mode)
FAMILIES: tuple[Family, ...] = get_args(Family)
EXAMPLES = 60

NOT_MODELLED = {"invalid packets", "dropped invalid packets", "forwarding rules", "health check ports"}
"""The model only covers first packets, on a node without rules of other programs."""

RARE = {"external IP that is a cluster IP", "contested frontend", "source ranges without endpoints"}
"""A few clusters in a hundred show these: another version of hypothesis may draw none of them."""

PacketOutcomes = tuple[Packet, Outcome, Outcome]


def _outcomes(cluster: Cluster) -> Iterator[PacketOutcomes]:
    """Yield every packet with its outcomes in nftables and iptables mode."""
    proxies = {
        (family, mode): ServiceModel(cluster.objects, cluster.node, cluster.settings, family, mode)
        for family in FAMILIES
        for mode in MODES
    }
    for packet in packets_for(cluster.objects, cluster.settings):
        nftables, iptables = (proxies[packet.family, mode].outcome(packet) for mode in MODES)
        yield packet, nftables, iptables


def _reason(cluster: Cluster, packet: Packet, nftables: Outcome, iptables: Outcome) -> str:
    """Return the expected difference that explains the two outcomes."""
    verdicts = nftables.verdict, iptables.verdict
    if verdicts == ("delivered", "delivered"):
        if nftables.targets != iptables.targets:
            assert nftables.targets.keys() <= iptables.targets.keys()
            return "consistent hashing"
        return _masquerade_reason(packet, nftables, iptables)
    if verdicts == ("rejected", "untouched"):
        return "undefined port" if _is_cluster_ip(cluster, packet) else "unrejected node packets"
    if verdicts == ("untouched", "delivered"):
        return "NodePorts on loopback" if packet.destination == LOOPBACK[4] else "NodePorts on all addresses"
    if verdicts == ("untouched", "dropped") and packet.destination.startswith("127.") and packet.source[:4] != "127.":
        return "non-loopback source to loopback"
    others = {
        ("dropped", "untouched"): "unallocated cluster IP",
        ("dropped", "rejected"): "source ranges without endpoints",
        ("dropped", "delivered"): "contested frontend",
        ("untouched", "rejected"): "NodePorts rejected everywhere",
        ("untouched", "dropped"): "NodePorts rejected everywhere",
    }
    return others[verdicts]


def _masquerade_reason(packet: Packet, nftables: Outcome, iptables: Outcome) -> str:
    assert nftables.targets == iptables.targets
    more = iptables.masqueraded - nftables.masqueraded
    if more:
        assert {target.rpartition(":")[0].strip("[]") for target in more} == {packet.source}
        return "hairpin of a remote pod"
    return "external IP that is a cluster IP"


def _is_cluster_ip(cluster: Cluster, packet: Packet) -> bool:
    services = [item["spec"] for item in cluster.objects if item["kind"] == "Service"]
    return any(packet.destination in spec["clusterIPs"] for spec in services)


def _features(cluster: Cluster, packet: Packet, outcome: Outcome) -> Iterator[str]:
    """Yield the features that a packet demonstrates."""
    yield f"{outcome.verdict} from {packet.origin}"
    yield f"{outcome.verdict} by {packet.protocol} in IPv{packet.family}"
    own = addresses(cluster.settings.addresses, packet.family)
    if packet.remembered in outcome.targets and len(outcome.targets) == 1:
        yield "kept"
    if packet.remembered and outcome.targets and packet.remembered not in outcome.targets:
        yield "remembered endpoint is gone"
    if outcome.targets:
        is_all = outcome.masqueraded == set(outcome.targets)
        yield "masqueraded" if is_all else "masqueraded in part" if outcome.masqueraded else "source kept"
        yield f"delivered at {'its own' if packet.destination in own else 'another'} address"
        yield f"{min(len(outcome.targets), 3)} targets"


FEATURES = {
    *(
        f"{verdict} from {origin}"
        for verdict in ("delivered", "rejected", "dropped")
        for origin in ("node", "pod", "outside")
    ),
    *(f"delivered by {protocol} in IPv{family}" for protocol in ("tcp", "udp", "sctp") for family in FAMILIES),
    *("kept", "remembered endpoint is gone", "masqueraded", "masqueraded in part", "source kept"),
    *("delivered at its own address", "delivered at another address", "1 targets", "2 targets", "3 targets"),
}


def test_random_clusters_show_every_feature_and_expected_difference() -> None:
    """Every packet has an outcome in both modes; all features and all expected differences occur."""
    seen: Counter[str] = Counter()
    reasons: Counter[str] = Counter()

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(clusters())
    def check(cluster: Cluster) -> None:
        for packet, nftables, iptables in _outcomes(cluster):
            seen.update(_features(cluster, packet, nftables))
            for outcome in (nftables, iptables):
                assert sum(outcome.targets.values()) == (outcome.verdict == "delivered")
                assert outcome.masqueraded <= set(outcome.targets)
            if nftables != iptables:
                reasons[_reason(cluster, packet, nftables, iptables)] += 1

    check()
    assert set(seen) >= FEATURES
    intended = difference_names("iptables") - NOT_MODELLED
    assert set(reasons) <= intended
    assert set(reasons) >= intended - RARE


@pytest.mark.property
@pytest.mark.parametrize("mode", MODES)
def test_order_of_objects_does_not_matter(mode: Mode) -> None:
    @fixed_seed(2)
    @settings(max_examples=10, deadline=None, database=None, phases=[Phase.generate])
    @given(clusters())
    def check(cluster: Cluster) -> None:
        for family in FAMILIES:
            one = ServiceModel(cluster.objects, cluster.node, cluster.settings, family, mode)
            other = ServiceModel(cluster.objects[::-1], cluster.node, cluster.settings, family, mode)
            for packet in packets_for(cluster.objects, cluster.settings):
                if packet.family == family:
                    assert one.outcome(packet) == other.outcome(packet)

    check()


def test_sources_are_inside_and_outside_of_source_ranges() -> None:
    """Packets have sources inside and outside of the Services' source ranges."""
    hit: Counter[bool] = Counter()

    @seed(3)
    @settings(max_examples=20, deadline=None, database=None, phases=[Phase.generate])
    @given(clusters())
    def check(cluster: Cluster) -> None:
        packets = list(packets_for(cluster.objects, cluster.settings))
        for family in FAMILIES:
            sources = {packet.source for packet in packets if packet.family == family}
            for service in (item["spec"] for item in cluster.objects if item["kind"] == "Service"):
                ranges = networks(service.get("loadBalancerSourceRanges", ()), family)
                hit.update(within(source, ranges) for source in sources if ranges)

    check()
    assert min(hit[True], hit[False]) > 20
