"""Every scenario's packets, traced through the rules that each mode would have: no kernel is asked.

``tests/packets`` holds the same traces to rules that were captured from a kernel, and to what it did.
"""

from functools import cache
from pathlib import Path

import pytest

from knft.cli.main import cli
from knft.cli.options import config_from_options
from knft.cli.rendered import legacy_rules, own_rules
from knft.source.directory import read_paths
from tests.lab import plan
from tests.packets.families import addresses
from tests.packets.node import NODE_FLAG, write_manifests
from tests.packets.scenario import Packet, Scenario, read_scenarios
from tests.packets.scene import cases
from tests.packets.traced import Tracer, untraced

SCENARIOS = read_scenarios()
MODES = ("nftables", "iptables", "ipvs")


class Rendered:
    """The rules of one scenario and mode after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = cache(self._make)

    def tracer(self, scenario: Scenario, mode: str) -> Tracer:
        return self._made(SCENARIOS.index(scenario), mode)

    def _make(self, number: int, mode: str) -> Tracer:
        scenario = SCENARIOS[number]
        own = [*_own(plan.NODE.lan), *_own(plan.NODE.gateway)]
        own += [one for name in scenario.addresses.get("node", ()) for one in _own(addresses(name.removeprefix("$")))]
        write_manifests(self._folder, scenario.manifests())
        changes = tuple(read_paths([str(self._folder)], None).changes)
        flags = [*NODE_FLAG, *scenario.arguments(), *(f"--local-address={address}" for address in own)]
        options = cli.commands["diff"].make_context("diff", ["-f", str(self._folder), *flags]).params
        if mode == "nftables":
            return Tracer(scenario, own_rules(changes, config_from_options(options), own), own, tells_silence=True)
        return Tracer(scenario, legacy_rules(mode, changes, {**options, "family": None}), own, tells_silence=False)


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
        for case in cases(SCENARIOS, mode)
    ],
)
def test_traced_through_rendered_rules(
    rendered: Rendered, mode: str, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The trace ends as the packet does."""
    rendered.tracer(scenario, mode).hold(packet, version, packet.expected_in(mode, version))


def test_the_packets_that_cannot_be_traced_are_these() -> None:
    """UNTRACED says why: there is nothing on the node to trace."""
    left_out = [str(packet) for scenario in SCENARIOS for packet in scenario.packets if untraced(packet)]
    assert left_out == ["C.4(8) local-1 to $local-1:8080/tcp"]
