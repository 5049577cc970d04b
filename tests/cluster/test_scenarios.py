"""All scenarios, with objects that knft gets from a real API server."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cluster.api_server_mode import ApiServerMode
from tests.cluster.cluster import Cluster
from tests.cluster.service_account import ServiceAccount
from tests.support.knft_command import knft
from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.scenario import Packet, Scenario, read_scenarios

SCENARIOS = read_scenarios()

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def runner(
    lab: Lab, cluster: Cluster, service_account: ServiceAccount, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScenarioRunner]:
    folder = tmp_path_factory.mktemp("scenarios")
    with closing(ApiServerMode(cluster, service_account, folder)) as mode, scenario_runner(lab, folder, mode) as runner:
        yield runner
        assert mode.starts > 0, "no scenario went through the API server"
    knft(lab.host("node").namespace, "cleanup")


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(SCENARIOS))
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner,
    cluster: Cluster,  # noqa: ARG001 - its logs are attached to a failure
    scenario: Scenario,
    packet: Packet,
    version: plan.Version,
) -> None:
    """The packet has the outcome that the scenario expects."""
    runner.check_packet(scenario, packet, version)
