"""Loads the rules of one scenario at a time on the node under test, sends its packets, and checks their outcomes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.families import addresses, in_family
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack, netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Answered, Outcome, Rejected, Silent
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.packets.modes import Mode
from tests.support.scenario import UNALLOCATED, UNPROXIED, VERSIONS, Expectation, Packet, Scenario
from tests.support.seen_sources import seen_by
from tests.support.trace_check import Tracer
from tests.support.waiting import TIMEOUT

MAX_ATTEMPTS = 100
"""Attempts after which each of 4 endpoints must have answered: a test fails falsely with probability 10^-12."""
MIN_ATTEMPTS = 8
"""The least number of connections that must all go to expected endpoints."""
SILENCE = 0.15
"""Seconds without an answer after which a packet counts as dropped. Other packets are answered within a few ms."""


def packet_parameters(scenarios: Iterable[Scenario]) -> list[object]:
    """Return each packet in each of its families, as parameters for pytest."""
    return [
        pytest.param(scenario, packet, version, id=f"{scenario.name}: IPv{version} {packet}")
        for scenario in scenarios
        for version in VERSIONS
        for packet in scenario.packets
        if version in packet.versions
    ]


class ScenarioRunner:
    """The node under test with the cluster of one scenario at a time, in one mode.

    ``is_traced`` tells whether packets of a scenario are traced too. Where the kernel and ``nft`` list the same rules
    as in another job, packets alone are enough.
    """

    def __init__(self, lab: Lab, folder: Path, mode: Mode, is_traced: Callable[[Scenario], bool]) -> None:
        self.lab = lab
        self.mode = mode
        self.folder = folder
        self._is_traced = is_traced
        self._current: Scenario | None = None
        self._open = ExitStack()

    def apply(self, scenario: Scenario) -> Responders:
        """Load the rules of the scenario's cluster, start its endpoints, and return their servers."""
        if scenario is not self._current:
            self.clear()
            self._current = scenario
            self._add_addresses(scenario)
            self.servers = self._open.enter_context(Responders())
            self._listen(scenario)
            self._open.callback(self.mode.clean, self.namespace, self.folder, scenario)
            if scenario.before is not None:
                self.mode.apply(self.namespace, self.folder, scenario, earlier=True)
            # A UDP conntrack entry outlives the rules that translated it, and clients use their ports again.
            flush_conntrack(self.namespace)
            self.mode.apply(self.namespace, self.folder, scenario, earlier=False)
            self._tracer = self._read_rules(scenario) if self._is_traced(scenario) else None
        return self.servers

    def _read_rules(self, scenario: Scenario) -> Tracer:
        captured = self.mode.capture(self.namespace)
        # Rules of the other modes need not drop the packet: it may have no route.
        rules_drop = self.mode.name == "nftables"
        return Tracer(scenario, captured.rule_sets, captured.node_addresses, rules_drop=rules_drop)

    def check_packet(self, scenario: Scenario, packet: Packet, version: plan.Version) -> None:
        """Send a packet of the scenario, and compare its outcome with the scenario's expectation in this mode.

        If the scenario is traced, the same expectation is compared with the packet's trace through the loaded rules, so
        the kernel checks the interpreters.
        """
        servers = self.apply(scenario)
        expected = packet.expected_in(self.mode.name, version)
        check = _PacketCheck(self.lab, servers, packet, expected, version)
        if expected.answered_by:
            check.expect_answers()
        elif expected.always_one_of:
            check.expect_one_server()
        else:
            check.expect_refusal()
        if self._tracer is not None:
            self._tracer.check(packet, version, expected)
        if packet is scenario.packets[-1]:
            # Check the listing after the last packet, because packets add elements to sets.
            self.mode.check_listing(self.namespace)

    def _listen(self, scenario: Scenario) -> None:
        for host, port, protocol in scenario.listeners():
            self.servers.serve(self.lab.host(host), port, protocol)
        for unserved in (UNALLOCATED, *UNPROXIED):
            for address in (unserved.ipv4, unserved.ipv6):
                self.servers.serve(self.lab.host("remote"), 80, address=address)

    def _add_addresses(self, scenario: Scenario) -> None:
        for host, names in scenario.addresses.items():
            for own in (addresses(name.removeprefix("$")) for name in names):
                with netlink(self.lab.host(host).namespace) as link:
                    link.add_loopback_addresses(own)
                self._open.callback(self._remove_address, host, own)

    def _remove_address(self, host: str, own: plan.Addresses) -> None:
        with netlink(self.lab.host(host).namespace) as link:
            link.remove_loopback_addresses(own)

    @property
    def namespace(self) -> Namespace:
        """The node's network namespace."""
        return self.lab.host("node").namespace

    def clear(self) -> None:
        """Remove the rules and stop the servers."""
        self._current = None
        self._open.close()


@contextmanager
def scenario_runner(
    lab: Lab, folder: Path, mode: Mode, is_traced: Callable[[Scenario], bool] = lambda _: True
) -> Iterator[ScenarioRunner]:
    """Make a ScenarioRunner, and remove its rules at the end."""
    runner = ScenarioRunner(lab, folder, mode, is_traced)
    try:
        yield runner
    finally:
        runner.clear()


class _PacketCheck:
    """One packet in one family, and its expectation."""

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
        outcome = self._dial(SILENCE if self._expected.dropped else TIMEOUT)
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
        for attempt in range(MAX_ATTEMPTS):
            answered.add(self._connect(expected))
            if attempt >= MIN_ATTEMPTS and answered == expected:
                return
        assert expected == answered

    def expect_one_server(self) -> None:
        allowed = set(self._expected.always_one_of)
        assert len({self._connect(allowed) for _ in range(2 * MIN_ATTEMPTS)}) == 1

    def _dial(self, timeout: float = TIMEOUT) -> Outcome:
        packet = self._packet
        target, _, port = in_family(packet.to, self._version).rpartition(":")
        source = in_family(packet.source_address, self._version) or None
        client = self._lab.host(packet.client)
        return dial(client, target, int(port), packet.protocol, source=source, timeout=timeout)

    def _connect(self, allowed: set[str]) -> str:
        """Connect once; check the server and the source that it saw, and return the server."""
        outcome = self._dial()
        assert isinstance(outcome, Answered), outcome
        assert outcome.server in allowed
        assert outcome.source in seen_by(outcome.server, self._expected.source, self._packet, self._version)
        return outcome.server
