"""Every scenario in kube-proxy's IPVS mode. It needs a kernel with ip_vs, so it runs in the virtual machine only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.captured import DEVICE, capture_ipvs
from tests.support.packets.modes import Ipvs
from tests.support.packets.rule_hits import NODE, POD, PORT, SentPacket, compare
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.scenario import Packet, Scenario, read_scenarios

pytestmark = pytest.mark.kernel


def test_cleanup_removes_all_but_ipv6_ipsets(lab: Lab, tmp_path: Path) -> None:
    """Cleanup leaves the ipsets of IPv6 alone, which kube-proxy's list lacks (docs/behaviour/ipvs.md#cleanup).

    This test is the first one, because the scenarios leave chains and ipsets behind on purpose.
    """
    node, mode, scenario = lab.host("node").namespace, Ipvs(), read_scenarios()[0]
    mode.apply(node, tmp_path, scenario, earlier=False)
    mode.remove(node, tmp_path, scenario)
    assert "->" not in node.run(["ipvsadm", "-Ln"]).stdout.split("Conn\n")[-1]
    assert node.run(["ip", "link", "show", "dev", DEVICE], check=False).returncode != 0
    left = node.run(["ipset", "list", "-name"]).stdout.split()
    assert [name for name in left if not name.startswith("KUBE-6-")] == []
    for program in ("iptables-save", "ip6tables-save"):
        assert "KUBE-" not in node.run([program]).stdout


BOUND = "10.96.0.50"


@pytest.mark.parametrize("client", ["outside", "node"])
@pytest.mark.parametrize("server", [POD, NODE])
@pytest.mark.parametrize("special", ["no special chains", "mark is set", "source NAT", "drop"])
def test_traced_rules_are_those_that_have_counted(lab: Lab, special: str, server: str, client: str) -> None:
    """As in ``tests/packets/test_rule_hits.py``, for packets that IPVS sends to another host, or to the node itself."""
    node = lab.host("node").namespace
    for command in (
        ["modprobe", "-a", "ip_vs", "ip_vs_rr"],
        ["sysctl", "-q", "-w", "net.ipv4.vs.conntrack=1"],
        ["ip", "link", "add", DEVICE, "type", "dummy"],
        ["ip", "address", "add", f"{BOUND}/32", "dev", DEVICE],
        ["ipvsadm", "-A", "-u", f"{BOUND}:{PORT}", "-s", "rr"],
        ["ipvsadm", "-a", "-u", f"{BOUND}:{PORT}", "-r", f"{server}:{PORT + 1}", "-m"],
    ):
        node.run(command)
    try:
        other_rules = capture_ipvs(node).rule_sets[4]
        compare(lab, special, SentPacket(client, lab.host(client).ipv4, BOUND), other_rules)
    finally:
        node.run(["ipvsadm", "-C"])
        node.run(["ip", "link", "delete", DEVICE])


@pytest.fixture(scope="module")
def runner(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRunner]:
    with scenario_runner(lab, tmp_path_factory.mktemp("manifests"), Ipvs()) as runner:
        yield runner


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(read_scenarios()))
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The packet has the outcome that the scenario expects in this mode."""
    runner.check_packet(scenario, packet, version)
