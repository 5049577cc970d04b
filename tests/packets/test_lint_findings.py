"""What findings of ``knft lint`` say about traffic is what packets get.

``lint.yaml`` has a Service for each such finding, and packets. ``clause`` of a packet is the identifier of the finding,
``note`` the finding's object.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from string import Formatter

import pytest

from knft.cli.commands import cli
from knft.cli.lint import problems_without_check
from knft.cli.manifests import scan_manifests
from knft.cli.options import config_of_node
from knft.lint.checks import Check
from knft.lint.lint import lint
from knft.lint.manifests import manifests_of
from knft.lint.report import Finding
from knft.source.described_kinds import LINTED_KINDS
from tests.support.families import address
from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.modes import Nftables
from tests.support.packets.scenario_runner import scenario_runner
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
SAID_BY = {
    C.ENDPOINT_WITHOUT_NODE.identifier: C.INTERNAL_POLICY_LOCAL.identifier,
    C.HEADLESS_SLICE.identifier: C.SERVICE_WITHOUT_SLICES.identifier,
}
"""Checks of which another finding of the object says whether packets are rejected or dropped."""
WITH_OWNER = {C.CONTESTED_FRONTEND.identifier, C.HEALTH_CHECK_PORT_IN_USE.identifier}
"""Checks whose sentence names the Service port that answers."""
_OWNER = re.compile(r" go to (?:endpoints of )?(\S+/[^\s,]+)")
_FRONTENDS = {"address", "addresses", "frontend", "frontends", "node_port", "others", "result"}
"""Values of sentences about traffic that have an address or a NodePort."""


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
                    _check_words(packet, findings, scenario, version)
                    runner.check_packet(scenario, packet, version)


def _check_words(packet: Packet, findings: tuple[Finding, ...], scenario: Scenario, version: plan.Version) -> None:
    """Check that the packet's finding is there, and that it says which outcome the packet has."""
    (check,) = packet.clauses
    found = _about(check, packet, findings, version)
    assert found, (check, packet.note, [(each.id, each.object) for each in findings])
    said = _about(SAID_BY.get(check, check), packet, findings, version)
    for word, is_outcome in (("are rejected", packet.rejected), ("are dropped", packet.dropped)):
        assert not is_outcome or (said and all(word in each.traffic for each in said)), (packet, said)
    owners = {name for each in found for name in _OWNER.findall(each.traffic)}
    assert bool(owners) == (check in WITH_OWNER and bool(packet.answered_by)), (packet, found)
    assert not owners or set(packet.answered_by) == {host for name in owners for host in _hosts(name, scenario)}, packet


def _about(check: str, packet: Packet, findings: Iterable[Finding], version: plan.Version) -> list[Finding]:
    """Return the findings of a check about the packet's object, family and, if they name frontends, destination."""
    own = (each for each in findings if (each.id, each.object) == (check, packet.note))
    of_family = [each for each in own if not each.families or f"IPv{version}" in each.families]
    if not _fields(check) & _FRONTENDS:
        return of_family
    name, _, port = packet.to.rpartition(":")
    destination = port if name == "$node" else address(name.removeprefix("$"), version)
    whole = re.compile(rf"(?<![\w.]){re.escape(destination)}(?![\w.])")
    return [each for each in of_family if whole.search(each.traffic)]


def _fields(check: str) -> set[str | None]:
    """Return the names of the values in a check's sentence about traffic."""
    (template,) = (each.value.traffic for each in Check if each.identifier == check)
    return {field for _, field, _, _ in Formatter().parse(template)}


def _hosts(service_port: str, scenario: Scenario) -> set[str]:
    """Return the hosts that are endpoints of a Service port, such as default/web:http."""
    service = service_port.partition("/")[2].partition(":")[0]
    return {
        host.removeprefix("$")
        for item in scenario.objects
        if item["kind"] == "EndpointSlice" and item["metadata"]["labels"].get("kubernetes.io/service-name") == service
        for endpoint in item["endpoints"]
        for host in endpoint["addresses"]
    }


def test_every_check_has_packets_or_a_reason() -> None:
    sent = {clause for scenario in SCENARIOS for packet in scenario.packets for clause in packet.clauses}
    assert sent | {check.identifier for check in WITHOUT_PACKETS} == {check.identifier for check in Check}
    assert not sent & {check.identifier for check in WITHOUT_PACKETS}
