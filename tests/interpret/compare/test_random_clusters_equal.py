"""Random clusters: knft, kube-proxy and the model say the same of every packet.

knft's and kube-proxy's rules are compared by what becomes of every class of packets: no difference but by intent. And
packets to every frontend, and just beside it, go through both: each fares as the model says, which has no rules.
``KNFT_CLUSTERS`` and ``KNFT_CLUSTERS_SEED`` are how many clusters, and which.
"""

import os
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from knft.comparison.compare import compare
from knft.comparison.sides import Sides
from knft.takeover.names import Mode
from tests.interpret.compare.rendered_sides import diff_command, render_cluster
from tests.interpret.compare.reports import reasons_in, unexpected_differences
from tests.interpret.model.random_clusters import Cluster, clusters, packets_for
from tests.interpret.model.rule_outcomes import MixedOutcomeError, RuleOutcomes
from tests.interpret.model.service_model import Mode as ModelMode
from tests.interpret.model.service_model import Packet, ServiceModel
from tests.packets.mode_differences import difference_names

EXAMPLES = int(os.environ.get("KNFT_CLUSTERS", "30"))
SEED = int(os.environ.get("KNFT_CLUSTERS_SEED", "1"))
ALONE_IN_CAPTURES = {"forwarding rules"}
"""It takes rules of others to see these."""
RARE = {
    "another's cluster IP",
    "any own source",
    "claims",
    "guard without endpoints",
    "guarded throughout",
    "health check ports",
    "marked everywhere",
    "own refusal",
}
"""So few clusters may not have these; ``test_intents`` has each."""


def for_clusters(look: Callable[[Cluster], None], share: int = 1) -> None:
    """Have something looked at in random clusters, or a part of them; one that fails is made as small as can be."""
    chosen = settings(
        max_examples=EXAMPLES // share,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=False,
    )
    seed(SEED)(chosen(given(clusters())(look)))()


@pytest.mark.parametrize("mode", [Mode.IPTABLES, Mode.IPVS])
def test_rules_are_equal_by_outcome(mode: Mode) -> None:
    """There is no difference but by intent, nothing is undecided, and every intended difference is seen."""
    seen: Counter[str] = Counter()

    def look(world: Cluster) -> None:
        report = compare(render_cluster(mode, world), lambda _, __: None)
        assert unexpected_differences(report) == [], diff_command(mode, world)
        assert report.is_equal, diff_command(mode, world)
        seen.update(reasons_in(report))

    # Nearly everything differs by intent in mode ipvs, which takes long.
    for_clusters(look, 1 if mode is Mode.IPTABLES else 3)
    assert set(seen) >= difference_names(mode.value) - ALONE_IN_CAPTURES - RARE


def test_rules_do_what_the_model_says() -> None:
    """Of every packet: endpoints and how often each, masquerade, refusal, drop; who is remembered goes there again."""
    tried: Counter[str] = Counter()

    def look(world: Cluster) -> None:
        packets = list(packets_for(world.objects, world.settings))
        sides = render_cluster(Mode.IPTABLES, world)
        wrong = [sentence for mode in _MODES for sentence in _wrong(mode, sides, world, packets)]
        assert wrong == [], diff_command(Mode.IPTABLES, world)
        tried.update(packet.origin for packet in packets)

    for_clusters(look)
    assert min(tried.values()) > 100 * EXAMPLES


_MODES: tuple[ModelMode, ...] = ("nftables", "iptables")


def _wrong(mode: ModelMode, sides: Sides, world: Cluster, packets: list[Packet]) -> list[str]:
    """Return what rules of a mode do otherwise than the model, in words; no more than a few."""
    found = []
    for version, rules in (sides.knft if mode == "nftables" else sides.kube_proxy).items():
        walked = RuleOutcomes(rules, world.settings, packets)
        proxy = ServiceModel(world.objects, world.node, world.settings, version, mode)
        for packet in (packet for packet in packets if packet.family == version):
            said = proxy.outcome(packet)
            try:
                done = walked.outcome(packet)
            except MixedOutcomeError as error:
                found.append(f"{mode}: {packet}: {error}")
                continue
            if done != said:
                found.append(f"{mode}: {packet}: the model says {said}, the rules {done}")
    return found[:3]
