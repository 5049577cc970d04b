"""Traces the packets of every scenario through the rendered rules of each mode, without a kernel.

``tests/packets`` traces them through rules captured from a kernel, and compares the result with real packets.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from knft.cli.commands import cli
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.cli.options import config_from_options
from knft.comparison.rendered import knft_rules, kube_proxy_rules
from knft.families import IpVersion
from knft.interpret.rules import AddToSet, Chain, Rule, RuleSet
from knft.proxy_mode import Mode
from knft.source.paths import read_paths
from tests.support.families import addresses
from tests.support.knft_command import NODE_FLAG, write_manifests
from tests.support.lab import plan
from tests.support.packets.scenario_runner import packet_parameters
from tests.support.scenario import Packet, Scenario, read_scenarios
from tests.support.trace_check import Tracer, is_untraced

SCENARIOS = read_scenarios()
MODES = ("nftables", "iptables", "ipvs")


class Rendered:
    """Renders and caches the rules of scenarios, by mode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cached = cache(self._make)

    def tracer(self, scenario: Scenario, mode: str) -> Tracer:
        return self._cached(SCENARIOS.index(scenario), mode)

    def rules(self, scenario: Scenario, mode: str = "nftables") -> tuple[dict[IpVersion, RuleSet], list[str]]:
        """Return a scenario's rules in a mode, and the node's addresses."""
        own = [*_own(plan.NODE.lan), *_own(plan.NODE.gateway)]
        own += [one for name in scenario.addresses.get("node", ()) for one in _own(addresses(name.removeprefix("$")))]
        write_manifests(self._folder, scenario.manifests())
        changes = tuple(read_paths([str(self._folder)], None).changes)
        flags = [*NODE_FLAG, *scenario.arguments(), *(f"--local-address={address}" for address in own)]
        options = cli.commands["diff"].make_context("diff", ["-f", str(self._folder), *flags]).params
        if mode == "nftables":
            return knft_rules(changes, config_from_options(options), own), own
        return kube_proxy_rules(changes, kube_proxy_options(Mode(mode), options)).rules, own

    def _make(self, number: int, mode: str) -> Tracer:
        rules, own = self.rules(SCENARIOS[number], mode)
        return Tracer(SCENARIOS[number], rules, own, rules_drop=mode == "nftables")


def _own(found: plan.Addresses) -> tuple[str, str]:
    return found.ipv4, found.ipv6


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return Rendered(tmp_path_factory.mktemp("manifests"))


@pytest.mark.parametrize(
    ("mode", "scenario", "packet", "version"),
    [
        pytest.param(mode, *case.values, id=f"{mode} {case.id}")  # type: ignore[attr-defined] # ParameterSet's
        for mode in MODES
        for case in packet_parameters(SCENARIOS)
    ],
)
def test_trace_through_rendered_rules(
    rendered: Rendered, mode: str, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The trace has the outcome that the scenario expects."""
    rendered.tracer(scenario, mode).check(packet, version, packet.expected_in(mode, version))


def test_only_packets_of_a_pod_to_itself_are_not_traced() -> None:
    """Such a packet does not reach the node."""
    left_out = [str(packet) for scenario in SCENARIOS for packet in scenario.packets if is_untraced(packet)]
    assert left_out == ["nftables.md#hairpin local-1 to $local-1:8080/tcp"]


MUTATIONS: dict[str, Callable[[RuleSet], RuleSet]] = {
    "no NAT chains": lambda rules: replace(
        rules, base_chains=tuple(it for it in rules.base_chains if it.kind != "nat")
    ),
    "no filter chains": lambda rules: replace(
        rules, base_chains=tuple(it for it in rules.base_chains if it.kind == "nat")
    ),
    "no masquerading": lambda rules: replace(
        rules, base_chains=tuple(it for it in rules.base_chains if it.hook != "postrouting")
    ),
    "no affinity entries": lambda rules: _without(rules, AddToSet),
    "maps with only their first element": lambda rules: replace(
        rules,
        collections={
            name: replace(collection, elements=collection.elements[:1])
            for name, collection in rules.collections.items()
        },
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutated_rules_are_found(rendered: Rendered, name: str) -> None:
    """Scenario "affinity" has packets with every outcome; each mutation affects some of them, but not all."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "affinity")
    rules, own = rendered.rules(scenario)
    broken = Tracer(
        scenario,
        {version: MUTATIONS[name](rules_of_family) for version, rules_of_family in rules.items()},
        own,
        rules_drop=True,
    )
    found = [_matches(broken, packet, version) for packet in scenario.packets for version in packet.versions]
    assert set(found) == {True, False}


def _matches(tracer: Tracer, packet: Packet, version: plan.Version) -> bool:
    try:
        tracer.check(packet, version, packet)
    except AssertionError:
        return False
    return True


def _without(rules: RuleSet, kind: type) -> RuleSet:
    def remaining(rule: Rule) -> Rule:
        return replace(rule, steps=tuple(step for step in rule.steps if type(step) is not kind))

    return replace(
        rules, chains={name: Chain(name, tuple(map(remaining, chain.rules))) for name, chain in rules.chains.items()}
    )
