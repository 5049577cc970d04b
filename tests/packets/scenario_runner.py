"""One scenario at a time, in force on the node under test, and what has to come of each packet."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.packets.modes import Mode
from tests.support.families import addresses, in_family
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack, netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Answered, Outcome, Rejected, Silent
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.scenario import UNALLOCATED, UNPROXIED, VERSIONS, Expectation, Packet, Scenario
from tests.support.seen_sources import seen_by
from tests.support.trace_check import Tracer

TRIES = 100
"""Within so many connections each of 4 endpoints answers, but for once in 10^12 tests."""
AT_LEAST = 8
"""So many connections at least must all go to allowed endpoints."""
PATIENCE = 3.0
"""Seconds in which an answer or a refusal must come."""
SILENCE = 0.15
"""Seconds after which silence counts as a drop: what is not dropped here is answered within a millisecond or two."""


def packet_parameters(scenarios: list[Scenario], mode: str) -> list[object]:
    """Return every packet that a mode can be tried with, in every family that it is sent in, as pytest's parameters."""
    return [
        pytest.param(scenario, packet, version, id=f"{scenario.name}: IPv{version} {packet}")
        for scenario in scenarios
        if mode not in scenario.unsupported_by
        for version in VERSIONS
        for packet in scenario.packets
        if version in packet.versions
    ]


class ScenarioRunner:
    """The node under test with one scenario's cluster at a time, put in force in one mode."""

    def __init__(self, lab: Lab, folder: Path, mode: Mode) -> None:
        self.lab = lab
        self.mode = mode
        self._folder = folder
        self._current: Scenario | None = None
        self._open = ExitStack()

    def apply(self, scenario: Scenario) -> Responders:
        """Have the scenario's cluster in force, and its endpoints listening; return these."""
        if scenario is not self._current:
            self.clear()
            self._current = scenario
            self._give_addresses(scenario)
            self.servers = self._open.enter_context(Responders())
            self._listen(scenario)
            self._open.callback(self.mode.clean, self.namespace, self._folder, scenario)
            if scenario.before is not None:
                self.mode.apply(self.namespace, self._folder, scenario, earlier=True)
            # A flow of UDP outlives the rules that translated it, and clients use their ports again.
            flush_conntrack(self.namespace)
            self.mode.apply(self.namespace, self._folder, scenario, earlier=False)
            captured = self.mode.capture(self.namespace)
            # Only knft drops by itself whatever shall not be answered.
            knows_silence = self.mode.name == "nftables"
            self._tracer = Tracer(scenario, captured.rules, captured.own, tells_silence=knows_silence)
        return self.servers

    def try_packet(self, scenario: Scenario, packet: Packet, version: plan.Version) -> None:
        """Send a packet of the scenario, and hold its outcome against what the scenario expects in this mode.

        The same of its trace through the rules that are in force: so the interpreters are held to the kernel.
        """
        servers = self.apply(scenario)
        expected = packet.expected_in(self.mode.name, version)
        trial = _Trial(self.lab, servers, packet, expected, version)
        if expected.answered_by:
            trial.expect_answers()
        elif expected.always_one_of:
            trial.expect_one_server()
        else:
            trial.expect_refusal()
        self._tracer.check(packet, version, expected)
        if packet is scenario.packets[-1]:
            # Again now, because packets can change what is listed.
            self.mode.check_listing(self.namespace)

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
                    link.add_loopback_addresses(own)
                self._open.callback(self._take_address, host, own)

    def _take_address(self, host: str, own: plan.Addresses) -> None:
        with netlink(self.lab.host(host).namespace) as link:
            link.remove_loopback_addresses(own)

    @property
    def namespace(self) -> Namespace:
        """The node's network namespace."""
        return self.lab.host("node").namespace

    def clear(self) -> None:
        """Take the rules and the servers away."""
        self._current = None
        self._open.close()


@contextmanager
def scenario_runner(lab: Lab, folder: Path, mode: Mode) -> Iterator[ScenarioRunner]:
    """Have a node without rules at first and at the end."""
    scene = ScenarioRunner(lab, folder, mode)
    try:
        yield scene
    finally:
        scene.clear()


class _Trial:
    """One packet in one family, and what is expected of it."""

    def __init__(
        self, lab: Lab, servers: Responders, packet: Packet, expected: Expectation, version: plan.Version
    ) -> None:
        self._lab = lab
        self._servers = servers
        self._packet = packet
        self._expected = expected
        self._version = version

    def expect_refusal(self) -> None:
        self._servers.reset_counts()
        outcome = self._dial(SILENCE if self._expected.dropped else PATIENCE)
        expected: Outcome = Silent()
        if self._expected.rejected:
            expected = Rejected("icmp")
        elif self._expected.unserved:
            expected = Rejected("reset")
        assert expected == outcome
        assert dict(self._servers.counts) == {}

    def expect_answers(self) -> None:
        expected = set(self._expected.answered_by)
        answered: set[str] = set()
        for attempt in range(TRIES):
            answered.add(self._answering(expected))
            if attempt >= AT_LEAST and answered == expected:
                return
        assert expected == answered

    def expect_one_server(self) -> None:
        allowed = set(self._expected.always_one_of)
        assert len({self._answering(allowed) for _ in range(2 * AT_LEAST)}) == 1

    def _dial(self, timeout: float = PATIENCE) -> Outcome:
        packet = self._packet
        target, _, port = in_family(packet.to, self._version).rpartition(":")
        source = in_family(packet.source_address, self._version) or None
        client = self._lab.host(packet.client)
        return dial(client, target, int(port), packet.protocol, source=source, timeout=timeout)

    def _answering(self, allowed: set[str]) -> str:
        """Return who answers one connection, having checked that it may and whom it saw."""
        outcome = self._dial()
        assert isinstance(outcome, Answered), outcome
        assert outcome.server in allowed
        assert outcome.source in seen_by(outcome.server, self._expected.source, self._packet, self._version)
        return outcome.server
