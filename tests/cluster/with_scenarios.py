"""Every scenario through a real API server: what is written there is what happens to packets."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cluster.account import Account
from tests.cluster.cluster import Cluster
from tests.cluster.mode import ThroughApi
from tests.packets.node import knft
from tests.packets.scenario import Packet, Scenario, read_scenarios
from tests.packets.scene import Scene, cases, opened
from tests.support.lab import plan
from tests.support.lab.topology import Lab

SCENARIOS = read_scenarios()

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def scene(lab: Lab, cluster: Cluster, account: Account, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scenarios")
    with closing(ThroughApi(cluster, account, folder)) as mode, opened(lab, folder, mode) as scene:
        yield scene
    knft(lab.host("node").namespace, "cleanup")


@pytest.mark.parametrize(("scenario", "packet", "version"), cases(SCENARIOS, "nftables"))
def test_packet(scene: Scene, cluster: Cluster, scenario: Scenario, packet: Packet, version: plan.Version) -> None:  # noqa: ARG001 - its logs
    """The packet has the outcome that its clause says."""
    scene.try_packet(scenario, packet, version)
