"""Every scenario, in IPv4 and in IPv6: what behaviour.md says of a packet is what happens to it."""

from collections.abc import Iterator

import pytest

from tests.packets.modes import Nftables
from tests.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.scenario import FOLDER, VERSIONS, Packet, Scenario, read_scenarios

SCENARIOS = read_scenarios()

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def scene(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRunner]:
    with scenario_runner(lab, tmp_path_factory.mktemp("manifests"), Nftables()) as scene:
        yield scene


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(SCENARIOS, "nftables"))
def test_packet(scene: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version) -> None:
    """The packet has the outcome that its clause says."""
    scene.try_packet(scenario, packet, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_enough_outcomes(version: plan.Version) -> None:
    """At least 120 outcomes in each family."""
    assert sum(version in packet.versions for scenario in SCENARIOS for packet in scenario.packets) >= 120


def test_every_file_is_read() -> None:
    """No file is left out by mistake."""
    assert {path.stem for path in FOLDER.iterdir()} == {scenario.name.partition(" ")[0] for scenario in SCENARIOS}
