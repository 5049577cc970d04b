"""For every scenario, knft and kube-proxy's modes have only expected differences, with the scenario's reasons."""

import pytest

from knft.comparison.compare import compare
from knft.proxy_mode import Mode
from tests.interpret.compare.rendered_sides import render_scenario
from tests.support.differences_in_reports import reasons_in, unexpected_differences
from tests.support.scenario import Scenario, read_scenarios

MODES = (Mode.IPTABLES, Mode.IPVS)
CASES = [
    pytest.param(scenario, mode, id=f"{scenario.name}: {mode.value}") for scenario in read_scenarios() for mode in MODES
]


@pytest.mark.parametrize(("scenario", "mode"), CASES)
def test_scenario_has_only_expected_differences(scenario: Scenario, mode: Mode) -> None:
    """There are only expected differences, and the comparison finds each one that a packet of the scenario shows."""
    report = compare(render_scenario(mode, scenario), lambda _, __: None)
    assert unexpected_differences(report) == []
    assert report.is_equal
    named = {departure.by for packet in scenario.packets for departure in packet.mode_differences(mode.value)}
    assert named <= reasons_in(report)
