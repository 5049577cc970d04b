"""Every scenario in kube-proxy's IPVS mode, on a kernel that has it: the virtual machine, where this file is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import plan
from tests.lab.topology import Lab
from tests.packets.captured import DEVICE
from tests.packets.modes import Ipvs
from tests.packets.scenario import Packet, Scenario, read_scenarios
from tests.packets.scene import Scene, cases, opened

pytestmark = pytest.mark.kernel


def test_cleanup_leaves_nothing_of_the_mode(lab: Lab, tmp_path: Path) -> None:
    """But the sets of IPv6, which are not on kube-proxy's list (E.9). First, as the scenarios need them."""
    node, mode, scenario = lab.host("node").namespace, Ipvs(), read_scenarios()[0]
    mode.program(node, tmp_path, scenario, earlier=False)
    mode.remove(node, tmp_path, scenario)
    assert "->" not in node.run(["ipvsadm", "-Ln"]).stdout.split("Conn\n")[-1]
    assert node.run(["ip", "link", "show", "dev", DEVICE], check=False).returncode != 0
    left = node.run(["ipset", "list", "-name"]).stdout.split()
    assert [name for name in left if not name.startswith("KUBE-6-")] == []
    for program in ("iptables-save", "ip6tables-save"):
        assert "KUBE-" not in node.run([program]).stdout


@pytest.fixture(scope="module")
def scene(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(lab, tmp_path_factory.mktemp("manifests"), Ipvs()) as scene:
        yield scene


@pytest.mark.parametrize(("scenario", "packet", "version"), cases(read_scenarios(), "ipvs"))
def test_packet(scene: Scene, scenario: Scenario, packet: Packet, version: plan.Version) -> None:
    """The packet has the outcome that its clause says, or the one that its departure says."""
    scene.try_packet(scenario, packet, version)
