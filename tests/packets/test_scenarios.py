"""Every scenario, in IPv4 and in IPv6: what behaviour.md says of a packet is what happens to it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab import plan
from tests.lab.links import forget_flows, netlink
from tests.lab.namespace import Namespace
from tests.lab.outcomes import Answered, Outcome, Rejected, Silent
from tests.lab.responders import Responders
from tests.lab.topology import Lab
from tests.lab.traffic import dial
from tests.packets.families import addresses, in_family
from tests.packets.node import knft, listed, sync_once, write_manifests
from tests.packets.scenario import (
    FOLDER,
    UNALLOCATED,
    UNPROXIED,
    VERSIONS,
    Packet,
    Scenario,
    read_scenarios,
)

SCENARIOS = read_scenarios()
CASES = [
    pytest.param(scenario, packet, version, id=f"{scenario.name}: IPv{version} {packet}")
    for scenario in SCENARIOS
    for version in VERSIONS
    for packet in scenario.packets
    if version in packet.versions
]
TRIES = 100
"""Within so many connections each of 4 endpoints answers, but for once in 10^12 tests."""
AT_LEAST = 8
"""So many connections at least must all go to allowed endpoints."""
PATIENCE = 3.0
"""Seconds in which an answer or a refusal must come."""
SILENCE = 0.15
"""Seconds after which silence counts as a drop: what is not dropped here is answered within a millisecond or two."""

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
            self._give_addresses(scenario)
            self.servers = self._open.enter_context(Responders())
            self._listen(scenario)
            self._open.callback(self._clean_up)
            if scenario.before is not None:
                write_manifests(self._folder, scenario.earlier_manifests())
                sync_once(self.namespace, self._folder, *scenario.arguments())
            # A flow of UDP outlives the rules that translated it, and clients use their ports again.
            forget_flows(self.namespace)
            write_manifests(self._folder, scenario.manifests())
            sync_once(self.namespace, self._folder, *scenario.arguments())
            assert "table ip knft" in listed(self.namespace)
        return self.servers

    def _listen(self, scenario: Scenario) -> None:
        for host, port, protocol in scenario.listeners():
            self.servers.serve(self.lab.host(host), port, protocol)
        for unserved in (UNALLOCATED, *UNPROXIED):
            for address in (unserved.ipv4, unserved.ipv6):
                self.servers.serve(self.lab.host("remote"), 80, address=address)

    def _give_addresses(self, scenario: Scenario) -> None:
        for host, names in scenario.addresses.items():
            for own in (addresses(name.removeprefix("$")) for name in names):
                with netlink(self.lab.host(host).namespace) as link:
                    link.add_own_addresses(own)
                self._open.callback(self._take_address, host, own)

    def _take_address(self, host: str, own: plan.Addresses) -> None:
        with netlink(self.lab.host(host).namespace) as link:
            link.remove_own_addresses(own)

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
    elif packet.always_one_of:
        _expect_one_server(lab, packet, version)
    else:
        _expect_refusal(lab, servers, packet, version)
    if packet is scenario.packets[-1]:
        # Again now, because packets can change what is listed.
        assert "table ip knft" in listed(node.namespace)


def _expect_refusal(lab: Lab, servers: Responders, packet: Packet, version: plan.Version) -> None:
    servers.reset_counts()
    outcome = _dial(lab, packet, version, SILENCE if packet.dropped else PATIENCE)
    expected: Outcome = Silent()
    if packet.rejected:
        expected = Rejected("icmp")
    elif packet.unserved:
        expected = Rejected("reset")
    assert expected == outcome
    assert dict(servers.counts) == {}


def _dial(lab: Lab, packet: Packet, version: plan.Version, timeout: float = PATIENCE) -> Outcome:
    target, _, port = in_family(packet.to, version).rpartition(":")
    source = in_family(packet.source_address, version) or None
    return dial(lab.host(packet.client), target, int(port), packet.protocol, source=source, timeout=timeout)


def _expect_answers(lab: Lab, packet: Packet, version: plan.Version) -> None:
    expected = set(packet.answered_by)
    answered: set[str] = set()
    for attempt in range(TRIES):
        answered.add(_answering(lab, packet, version, expected))
        if attempt >= AT_LEAST and answered == expected:
            return
    assert expected == answered


def _expect_one_server(lab: Lab, packet: Packet, version: plan.Version) -> None:
    allowed = set(packet.always_one_of)
    assert len({_answering(lab, packet, version, allowed) for _ in range(2 * AT_LEAST)}) == 1


def _answering(lab: Lab, packet: Packet, version: plan.Version, allowed: set[str]) -> str:
    """Return who answers one connection, having checked that it may and whom it saw."""
    outcome = _dial(lab, packet, version)
    assert isinstance(outcome, Answered), outcome
    assert outcome.server in allowed
    assert outcome.source in _sources(lab, packet, outcome.server, version)
    return outcome.server


def _sources(lab: Lab, packet: Packet, server: str, version: plan.Version) -> set[str]:
    """Return the source addresses that an endpoint may have seen."""
    node = plan.NODE
    if packet.source == "kept":
        return {in_family(packet.source_address, version) or lab.host(packet.client).address(version)}
    if server == node.host:  # Which of its addresses the node takes towards itself is the kernel's business.
        return {node.lan.of(version), node.gateway.of(version)}
    on_node = server.startswith(f"{node.pod_prefix}-")
    return {(node.gateway if on_node else node.lan).of(version)}


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_enough_outcomes(version: plan.Version) -> None:
    """At least 120 outcomes in each family."""
    assert len([case for case in CASES if case.values[2] == version]) >= 120


def test_every_file_is_read() -> None:
    """No file is left out by mistake."""
    assert {path.stem for path in FOLDER.iterdir()} == {scenario.name.partition(" ")[0] for scenario in SCENARIOS}
