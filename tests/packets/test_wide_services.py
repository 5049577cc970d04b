"""Wide Services treat packets as other Services do."""

from collections.abc import Iterator

import pytest

from knft.render import wide
from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.modes import NftablesInProcess
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.scenario import Packet, Scenario, read_scenarios

NAMES = ("affinity", "external-addresses", "hairpin", "no-endpoints", "policies", "source-ranges", "udp")
SCENARIOS = [scenario for scenario in read_scenarios() if scenario.name.partition(" ")[0] in NAMES]

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def runner(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRunner]:
    """A node on which every Service port with endpoints is wide."""
    mode = NftablesInProcess(lab.host("node").namespace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "COPIES_FACTOR", 0)
        with scenario_runner(lab, tmp_path_factory.mktemp("manifests"), mode) as runner:
            yield runner
    mode.close()


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(SCENARIOS))
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    runner.check_packet(scenario, packet, version)
    rules = runner.lab.host("node").namespace.run(["nft", "list", "ruleset"]).stdout
    assert "goto pool-" not in rules
