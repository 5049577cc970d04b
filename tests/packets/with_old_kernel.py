"""Every scenario on an old kernel: the virtual machine, where this file is named, and knft works in this process."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.packets.modes import NftablesHere
from tests.packets.scenario import Packet, Scenario, read_scenarios
from tests.packets.scene import Scene, cases, opened
from tests.support.lab import plan
from tests.support.lab.topology import Lab

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def scene(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with (
        closing(NftablesHere(lab.host("node").namespace)) as mode,
        opened(lab, tmp_path_factory.mktemp("manifests"), mode) as scene,
    ):
        yield scene


@pytest.mark.parametrize(("scenario", "packet", "version"), cases(read_scenarios(), "nftables"))
def test_packet(scene: Scene, scenario: Scenario, packet: Packet, version: plan.Version) -> None:
    """The packet has the outcome that its clause says."""
    scene.try_packet(scenario, packet, version)
