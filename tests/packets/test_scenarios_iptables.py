"""Every scenario in kube-proxy's iptables mode, in IPv4 and IPv6."""

from collections.abc import Iterator

import pytest

from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.modes import Iptables
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.scenario import Packet, Scenario, read_scenarios

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def runner(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRunner]:
    with scenario_runner(lab, tmp_path_factory.mktemp("manifests"), Iptables()) as runner:
        yield runner


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(read_scenarios()))
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The packet has the outcome that the scenario expects in this mode."""
    runner.check_packet(scenario, packet, version)
