"""Scenarios by outcome: knft does what kube-proxy's modes do, but by intent, and for the reasons that packets give."""

import pytest

from knft.comparison.compare import compare
from knft.takeover.names import Mode
from tests.interpret.compare.rendered_sides import render_scenario
from tests.interpret.compare.reports import reasons_in, unexpected_differences
from tests.support.scenario import Scenario, read_scenarios

MODES = (Mode.IPTABLES, Mode.IPVS)
CASES = [
    pytest.param(scenario, mode, id=f"{scenario.name}: {mode.value}")
    for scenario in read_scenarios()
    for mode in MODES
    if mode.value not in scenario.unsupported_by
]


@pytest.mark.parametrize(("scenario", "mode"), CASES)
def test_scenario(scenario: Scenario, mode: Mode) -> None:
    """There is no difference but by intent, and each departure that a packet shows is found."""
    report = compare(render_scenario(mode, scenario), lambda _, __: None)
    assert unexpected_differences(report) == []
    assert report.is_equal
    named = {departure.by for packet in scenario.packets for departure in packet.mode_differences(mode.value)}
    assert named <= reasons_in(report)
