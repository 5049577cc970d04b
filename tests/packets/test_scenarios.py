"""Every scenario in knft's own mode, in IPv4 and IPv6."""

from collections.abc import Iterator

import pytest

from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.modes import Nftables
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.scenario import FOLDER, VERSIONS, Packet, Scenario, read_scenarios

SCENARIOS = read_scenarios()

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def runner(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRunner]:
    with scenario_runner(lab, tmp_path_factory.mktemp("manifests"), Nftables()) as runner:
        yield runner


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(SCENARIOS))
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The packet has the outcome that the scenario expects in this mode."""
    runner.check_packet(scenario, packet, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_scenarios_have_at_least_120_packets(version: plan.Version) -> None:
    assert sum(version in packet.versions for scenario in SCENARIOS for packet in scenario.packets) >= 120


def test_every_scenario_file_is_read() -> None:
    """No file of the directory is ignored."""
    assert {path.stem for path in FOLDER.iterdir()} == {scenario.name.partition(" ")[0] for scenario in SCENARIOS}
