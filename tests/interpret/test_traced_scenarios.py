"""Every scenario's packets, traced through the rules that each mode would have: no kernel is asked.

``tests/packets`` holds the same traces to rules that were captured from a kernel, and to what it did.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from knft.cli.main import cli
from knft.cli.options import config_from_options
from knft.comparison.rendered import knft_rules, kube_proxy_rules
from knft.families import IpVersion
from knft.interpret.rules import AddToSet, Chain, Rule, RuleSet
from knft.source.directory import read_paths
from tests.packets.scenario_runner import packet_parameters
from tests.support.families import addresses
from tests.support.knft_command import NODE_FLAG, write_manifests
from tests.support.lab import plan
from tests.support.scenario import Packet, Scenario, read_scenarios
from tests.support.trace_check import Tracer, untraced

SCENARIOS = read_scenarios()
MODES = ("nftables", "iptables", "ipvs")


class Rendered:
    """The rules of one scenario and mode after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = cache(self._make)

    def tracer(self, scenario: Scenario, mode: str) -> Tracer:
        return self._made(SCENARIOS.index(scenario), mode)

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
        return kube_proxy_rules(mode, changes, {**options, "family": None}), own

    def _make(self, number: int, mode: str) -> Tracer:
        rules, own = self.rules(SCENARIOS[number], mode)
        return Tracer(SCENARIOS[number], rules, own, tells_silence=mode == "nftables")


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
        for case in packet_parameters(SCENARIOS, mode)
    ],
)
def test_traced_through_rendered_rules(
    rendered: Rendered, mode: str, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The trace ends as the packet does."""
    rendered.tracer(scenario, mode).check(packet, version, packet.expected_in(mode, version))


def test_the_packets_that_cannot_be_traced_are_these() -> None:
    """UNTRACED says why: there is nothing on the node to trace."""
    left_out = [str(packet) for scenario in SCENARIOS for packet in scenario.packets if untraced(packet)]
    assert left_out == ["nftables.md#hairpin local-1 to $local-1:8080/tcp"]


BREAKS: dict[str, Callable[[RuleSet], RuleSet]] = {
    "nothing is translated": lambda rules: replace(
        rules, base_chains=tuple(it for it in rules.base_chains if it.kind != "nat")
    ),
    "nothing is filtered": lambda rules: replace(
        rules, base_chains=tuple(it for it in rules.base_chains if it.kind == "nat")
    ),
    "nobody is masqueraded": lambda rules: replace(
        rules, base_chains=tuple(it for it in rules.base_chains if it.hook != "postrouting")
    ),
    "nobody is remembered": lambda rules: _without(rules, AddToSet),
    "each map leads to its first endpoint": lambda rules: replace(
        rules, collections={name: replace(held, elements=held.elements[:1]) for name, held in rules.collections.items()}
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_rules_that_do_something_else_are_found(rendered: Rendered, name: str) -> None:
    """Scenario "affinity" has packets with every outcome; each break is seen by some of them, and not by all."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "affinity")
    rules, own = rendered.rules(scenario)
    broken = Tracer(scenario, {version: BREAKS[name](held) for version, held in rules.items()}, own, tells_silence=True)
    found = [_is_held(broken, packet, version) for packet in scenario.packets for version in packet.versions]
    assert set(found) == {True, False}


def _is_held(tracer: Tracer, packet: Packet, version: plan.Version) -> bool:
    try:
        tracer.check(packet, version, packet)
    except AssertionError:
        return False
    return True


def _without(rules: RuleSet, kind: type) -> RuleSet:
    def left(rule: Rule) -> Rule:
        return replace(rule, steps=tuple(step for step in rule.steps if type(step) is not kind))

    return replace(
        rules, chains={name: Chain(name, tuple(map(left, chain.rules))) for name, chain in rules.chains.items()}
    )
