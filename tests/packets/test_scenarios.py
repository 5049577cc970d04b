"""Every scenario, in IPv4 and in IPv6: what behaviour.md says of a packet is what happens to it."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab import plan
from tests.lab.links import forget_flows
from tests.lab.namespace import Namespace
from tests.lab.outcomes import Answered, Outcome, Rejected, Silent
from tests.lab.responders import Responders
from tests.lab.topology import Host, Lab
from tests.lab.traffic import dial
from tests.packets.node import knft, listed, sync_once, write_manifests
from tests.packets.scenario import UNALLOCATED, VERSIONS, Packet, Scenario, address, read_scenarios

SCENARIOS = read_scenarios()
CASES = [
    pytest.param(scenario, packet, version, id=f"{scenario.name}: IPv{version} {packet}")
    for scenario in SCENARIOS
    for version in VERSIONS
    for packet in scenario.packets
]
TRIES = 100
"""Within so many connections each of 4 endpoints answers, but for once in 10^12 tests."""
AT_LEAST = 8
"""So many connections at least must all go to allowed endpoints."""
PATIENCE = 0.8
"""Seconds after which silence counts as a drop; a TCP client has not repeated itself yet (1 s)."""

pytestmark = pytest.mark.kernel


class Node:
    """The node under test with one scenario's cluster at a time, programmed by ``knft run``."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self._folder = folder
        self._current: Scenario | None = None
        self._open = ExitStack()

    def show(self, scenario: Scenario) -> Responders:
        """Have the scenario's cluster in force, and its endpoints listening; return these."""
        if scenario is not self._current:
            self.clear()
            self._current = scenario
            self.servers = self._open.enter_context(Responders())
            for host, port, protocol in scenario.listeners():
                self.servers.serve(self.lab.host(host), port, "udp" if protocol == "udp" else "tcp")
            for unallocated in (UNALLOCATED.ipv4, UNALLOCATED.ipv6):
                self.servers.serve(self.lab.host("remote"), 80, address=unallocated)
            # A flow of UDP outlives the rules that translated it, and clients use their ports again.
            forget_flows(self.namespace)
            write_manifests(self._folder, scenario.manifests())
            sync_once(self.namespace, self._folder, *scenario.arguments())
            self._open.callback(self._clean_up)
            assert "table ip knft" in listed(self.namespace)
        return self.servers

    @property
    def namespace(self) -> Namespace:
        """The node's network namespace."""
        return self.lab.host("node").namespace

    def clear(self) -> None:
        """Take the rules and the servers away."""
        self._current = None
        self._open.close()

    def _clean_up(self) -> None:
        knft(self.namespace, "cleanup")
        assert listed(self.namespace) == ""


@pytest.fixture(scope="module")
def node(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node, without rules at first and at the end."""
    node = Node(lab, tmp_path_factory.mktemp("manifests"))
    yield node
    node.clear()


@pytest.mark.parametrize(("scenario", "packet", "version"), CASES)
def test_packet(node: Node, scenario: Scenario, packet: Packet, version: plan.Version) -> None:
    """The packet has the outcome that its clause says."""
    servers, lab = node.show(scenario), node.lab
    if packet.answered_by:
        _expect_answers(lab, packet, version)
    else:
        _expect_refusal(lab, servers, packet, version)
    # Again now, because packets can change what is listed.
    assert "table ip knft" in listed(node.namespace)


def _expect_refusal(lab: Lab, servers: Responders, packet: Packet, version: plan.Version) -> None:
    servers.reset_counts()
    outcome = _dial(lab, packet, version)
    expected: Outcome = Silent()
    if packet.rejected:
        expected = Rejected("icmp")
    elif packet.unserved:
        expected = Rejected("reset")
    assert expected == outcome
    assert dict(servers.counts) == {}


def _dial(lab: Lab, packet: Packet, version: plan.Version) -> Outcome:
    name, _, port = packet.to.removeprefix("$").rpartition(":")
    return dial(_client(lab, packet), address(name, version), int(port), packet.protocol, timeout=PATIENCE)


def _client(lab: Lab, packet: Packet) -> Host:
    return lab.host(packet.client)


def _expect_answers(lab: Lab, packet: Packet, version: plan.Version) -> None:
    expected = set(packet.answered_by)
    answered: set[str] = set()
    for attempt in range(TRIES):
        outcome = _dial(lab, packet, version)
        assert isinstance(outcome, Answered), outcome
        assert outcome.server in expected
        assert _sources(lab, packet, version) >= {outcome.source}
        answered.add(outcome.server)
        if attempt >= AT_LEAST and answered == expected:
            return
    assert expected == answered


def _sources(lab: Lab, packet: Packet, version: plan.Version) -> set[str]:
    """Return the source addresses that an endpoint may have seen."""
    if packet.source == "masqueraded":
        return {plan.NODE.lan.of(version), plan.NODE.gateway.of(version)}
    client = _client(lab, packet)
    own = {client.address(version)}
    return own | {plan.NODE.gateway.of(version)} if client.name == "node" else own


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_enough_outcomes(version: plan.Version) -> None:
    """At least 25 outcomes in each family, each with the clause that it shows."""
    cases = [case for case in CASES if case.values[2] == version]
    assert len(cases) >= 25
    for case in cases:
        packet = case.values[1]
        assert isinstance(packet, Packet)
        assert re.fullmatch(r"[A-K]\.[0-9]+(\([0-9]+\))?", packet.clause), packet.clause


def test_every_scenario_has_its_own_file() -> None:
    """No file is left out by mistake."""
    assert {path.stem for path in (Path(__file__).parent.parent / "scenarios").iterdir()} == {
        scenario.name for scenario in SCENARIOS
    }
