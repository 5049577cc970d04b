"""What findings of ``knft lint`` say about traffic is what packets get.

``lint.yaml`` has a Service for each such finding, and packets. ``clause`` of a packet is the identifier of the finding,
``note`` the finding's object.
"""

from pathlib import Path

import pytest

from knft.cli.commands import cli
from knft.cli.lint import problems_without_check
from knft.cli.manifests import scan_manifests
from knft.cli.options import config_of_node
from knft.families import Family
from knft.lint.checks import Check
from knft.lint.lint import lint
from knft.lint.manifests import manifests_of
from knft.lint.report import Finding
from knft.source.described_kinds import LINTED_KINDS
from tests.packets.modes import Nftables
from tests.packets.scenario_runner import scenario_runner
from tests.support.lab.topology import Lab
from tests.support.scenario import Packet, Scenario, read_file

pytestmark = pytest.mark.kernel

SCENARIOS = tuple(read_file(Path(__file__).with_name("lint.yaml")))
C = Check
WITHOUT_PACKETS = {
    C.INVALID_OBJECT: "there is no object",
    C.FAMILY_WITHOUT_SLICES: "as service-without-slices: the same Sentence of knft explain",
    C.TOO_MANY_ENDPOINTS: "tests/packets/test_explanations.py sends them",
    C.TOO_MANY_FRONTENDS: "tests/packets/test_explanations.py sends them",
    C.SERVICE_WITHOUT_PORTS: "tests/packets/test_explanations.py sends them",
    C.BECAME_HEADLESS: "tests/packets/test_explanations.py sends packets to pods of a headless Service",
    C.NO_CLUSTER_IP: "there is no address to send to",
    C.FAMILY_WITHOUT_CLUSTER_IP: "there is no address to send to",
    C.SLICE_WITHOUT_SERVICE: "there is no Service",
    C.SLICE_WITHOUT_LABEL: "there is no Service",
    C.AFFINITY_WITH_HINTS: "docs/behaviour/nftables.md#session-affinity, with scenarios",
    C.AFFINITY_WITH_HASHING: "tests/packets/test_consistent_hashing.py sends them",
    C.SERVICE_CIDR_CONFLICT: "docs/behaviour/node.md#service-cidrs, with tests of the node",
    C.DEPRECATED_ANNOTATION: "knft does not read the field",
    C.TOPOLOGY_KEYS: "knft does not read the field",
    C.PREFER_CLOSE: "knft does not read the field",
    C.MIRRORED_ENDPOINTS: "the sentence is about a controller",
}
"""Checks whose sentences about traffic this test does not prove, and why."""


def _findings(folder: Path, scenario: Scenario) -> tuple[Finding, ...]:
    options = cli.commands["lint"].make_context("lint", ["-f", str(folder), *scenario.arguments()]).params
    scan = scan_manifests((str(folder),), LINTED_KINDS)
    objects = [change.current for change in scan.changes if change.current is not None]
    config = config_of_node("", options)
    return lint(manifests_of(objects, config, None, problems_without_check(scan.problems))).findings


def test_packets_get_what_findings_say(lab: Lab, tmp_path: Path) -> None:
    with scenario_runner(lab, tmp_path, Nftables()) as runner:
        for scenario in SCENARIOS:
            runner.apply(scenario)
            findings = _findings(tmp_path, scenario)
            for packet in scenario.packets:
                for version in packet.versions:
                    _check_words(packet, findings, Family(f"IPv{version}"))
                    runner.check_packet(scenario, packet, version)


def _check_words(packet: Packet, findings: tuple[Finding, ...], family: Family) -> None:
    """Check that the packet's finding is there, and that it is about the outcome that the packet has."""
    (check,) = packet.clauses
    about = [each for each in findings if (each.id, each.object) == (check, packet.note)]
    of_family = [each for each in about if not each.families or family.value in each.families]
    assert of_family, (check, packet.note, [(each.id, each.object) for each in findings])
    for word, is_outcome in (("are rejected", packet.rejected), ("are dropped", packet.dropped)):
        assert not is_outcome or any(word in each.traffic for each in findings if each.object == packet.note), packet


def test_every_check_has_packets_or_a_reason() -> None:
    sent = {clause for scenario in SCENARIOS for packet in scenario.packets for clause in packet.clauses}
    assert sent | {check.identifier for check in WITHOUT_PACKETS} == {check.identifier for check in Check}
    assert not sent & {check.identifier for check in WITHOUT_PACKETS}
