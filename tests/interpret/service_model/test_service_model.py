"""The model predicts the outcome of every packet of every scenario, which real kernels have confirmed.

``NOT_MODELLED`` counts the packets that the model does not cover. Scenarios use the lab's terms for outcomes: a packet
without an answer was dropped, or sent to an address without a listener.
"""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import get_args

import pytest

from tests.interpret.service_model.service_model import Mode, NotModelledError, Outcome, Packet, ServiceModel, Settings
from tests.support import scenario as scenarios
from tests.support.families import address, in_family
from tests.support.lab import plan

MODES: tuple[Mode, ...] = get_args(Mode)
SCENARIOS = scenarios.read_scenarios()

NOT_MODELLED = {
    ("claims", to): ("contested frontend", count)
    for to, count in {
        "$cluster.140:80": 12,
        "$external.140:80": 4,
        "$external.142:80": 4,
        "$node:30140": 4,
        "$external.143:80": 4,
        "$cluster.152:80": 4,
        "$cluster.153:80": 4,
        "$external.99:80": 8,
    }.items()
}
"""Packets that the model does not cover: scenario and destination, the reason, and their number."""

PASSES_UNANSWERED = ("undefined port", "unrejected node packets")
"""Mode differences in which a missing answer is not a drop: no host has the address."""
WITHOUT_LISTENER = {("changes", "$cluster.215:80", "iptables"), ("changes", "$cluster.222:80", "iptables")}
"""Packets to unallocated addresses: iptables mode does not drop them, but no host has the addresses either."""


_HOSTS = ("node", "remote", "outside", *(f"{kind}-{number}" for kind in ("local", "remote") for number in range(1, 9)))
_NO_LISTENER: tuple[str, frozenset[str], str] = ("nobody", frozenset(), "kept")
_LISTENERS_WITHOUT_SERVICE = (scenarios.UNALLOCATED, *scenarios.UNPROXIED)

Case = tuple[scenarios.Scenario, scenarios.Packet, plan.Version, Mode]


def _cases() -> Iterator[Case]:
    for scenario in SCENARIOS:
        for mode in MODES:
            yield from ((scenario, packet, version, mode) for packet in scenario.packets for version in packet.versions)


CASES = list(_cases())


def _settings(scenario: scenarios.Scenario) -> Settings:
    """Return the settings in a scenario's flags."""
    parser = ArgumentParser(exit_on_error=False)
    for flag in ("service-cidr", "cluster-cidr", "node-ip", "masquerade-bit", "pod-bridge-interface"):
        parser.add_argument(f"--{flag}", default="")
    parser.add_argument("--nodeport-addresses")
    parser.add_argument("--pod-interface-name-prefix", default="")
    parser.add_argument("--detect-local-mode", default="ClusterCIDR")
    parser.add_argument("--masquerade-all", action="store_true")
    # The model's packets open connections, so none is INVALID.
    parser.add_argument("--drop-invalid-packets", action="store_true")
    flags = parser.parse_args(scenario.arguments())
    return Settings(
        addresses=tuple(_addresses_of("node", scenario)),
        node_ips=_list(flags.node_ip),
        nodeport_addresses=None if flags.nodeport_addresses is None else _list(flags.nodeport_addresses),
        service_cidrs=_list(flags.service_cidr),
        masquerade_all=flags.masquerade_all,
        detect_local=flags.detect_local_mode,
        cluster_cidrs=_list(flags.cluster_cidr),
        interface=flags.pod_bridge_interface or flags.pod_interface_name_prefix,
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _addresses_of(host: str, scenario: scenarios.Scenario) -> list[str]:
    """Return all addresses of a host, the default one first."""
    names = [host, *(("node.pods",) if host == "node" else ()), *(("outside.101",) if host == "outside" else ())]
    names += [name.removeprefix("$") for name in scenario.addresses.get(host, ())]
    return [address(name, version) for name in names for version in scenarios.VERSIONS]


@lru_cache(maxsize=4)
def _hosts(name: str) -> dict[str, str]:
    """Return the hosts of the named scenario by their addresses."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    return {own: host for host in _HOSTS for own in _addresses_of(host, scenario)}


@lru_cache(maxsize=8)
def _model(name: str, version: plan.Version, mode: Mode) -> ServiceModel:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    return ServiceModel(scenario.manifests(), plan.NODE.node_name, _settings(scenario), version, mode)


def _packet(packet: scenarios.Packet, version: plan.Version, remembered: str | None = None) -> Packet:
    destination, _, port = in_family(packet.to, version).rpartition(":")
    source = in_family(packet.source_address, version) or address(packet.client, version)
    if destination == address("loopback", version):
        source = destination
    return Packet(
        family=version,
        origin="node" if packet.client == "node" else "pod" if packet.client.startswith("local-") else "outside",
        source=source,
        destination=destination,
        protocol=packet.protocol,
        port=int(port),
        remembered=remembered,
    )


def _observed(outcome: Outcome, packet: Packet, scenario: scenarios.Scenario) -> tuple[str, frozenset[str], str]:
    """Return what the lab observes: an outcome, the hosts that answer, and the source that they see."""
    hosts = _hosts(scenario.name)
    if outcome.verdict == "delivered":
        listeners = frozenset(_listener(target, packet.protocol, scenario) for target in outcome.targets)
        assert outcome.masqueraded in (frozenset(), frozenset(outcome.targets)), "scenarios have no mixed outcomes"
        return "answered", listeners, "masqueraded" if outcome.masqueraded else "kept"
    if outcome.verdict != "untouched":
        return outcome.verdict, frozenset(), "kept"
    host = hosts.get(packet.destination)
    if packet.port == 80 and any(packet.destination in (own.ipv4, own.ipv6) for own in _LISTENERS_WITHOUT_SERVICE):
        return "answered", frozenset({"remote"}), "kept"
    if host and (host, packet.port, packet.protocol) in scenario.listeners():
        return "answered", frozenset({host}), "kept"
    return ("unserved" if host or packet.destination in ("127.0.0.1", "::1") else "nobody"), frozenset(), "kept"


def _listener(target: str, protocol: str, scenario: scenarios.Scenario) -> str:
    own, _, port = target.rpartition(":")
    host = _hosts(scenario.name)[own.strip("[]")]
    assert (host, int(port), protocol) in scenario.listeners()
    return host


def _expected(expected: scenarios.Expectation) -> tuple[str, frozenset[str], str]:
    if expected.answered_by or expected.always_one_of:
        return "answered", frozenset(expected.answered_by or expected.always_one_of), expected.source
    if isinstance(expected, scenarios.ModeDifference) and expected.dropped and expected.by in PASSES_UNANSWERED:
        return _NO_LISTENER
    return "rejected" if expected.rejected else "dropped" if expected.dropped else "unserved", frozenset(), "kept"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_model_predicts_scenario(scenario: scenarios.Scenario, mode: Mode) -> None:
    """The model predicts what the scenario expects."""
    wrong = []
    for _, packet, version, _ in (case for case in CASES if case[0] is scenario and case[3] == mode):
        sent = _packet(packet, version)
        if (scenario.name, packet.to) in NOT_MODELLED:
            continue
        predicted = _observed(_model(scenario.name, version, mode).outcome(sent), sent, scenario)
        is_unanswered = (scenario.name, packet.to, mode) in WITHOUT_LISTENER
        expected = _NO_LISTENER if is_unanswered else _expected(packet.expected_in(mode, version))
        if predicted != expected:
            wrong.append(f"IPv{version} {packet}: the scenario expects {expected}, the model predicts {predicted}")
    assert wrong == []


def test_not_modelled_packets_are_listed() -> None:
    """The model raises NotModelledError exactly for the listed packets, with the listed reasons."""
    refused: Counter[tuple[str, str, str]] = Counter()
    for scenario, packet, version, mode in CASES:
        try:
            _model(scenario.name, version, mode).outcome(_packet(packet, version))
        except NotModelledError as reason:
            refused[scenario.name, packet.to, str(reason)] += 1
    assert refused == {(*key, reason): count for key, (reason, count) in NOT_MODELLED.items()}


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 1500
    assert sum(count for _, count in NOT_MODELLED.values()) == 44


@pytest.mark.parametrize("mode", MODES)
def test_sticky_frontend_uses_the_remembered_endpoint(mode: Mode) -> None:
    """A sticky frontend keeps sending a client to the remembered endpoint, and ignores an endpoint it does not have."""
    tried = 0
    for scenario, packet, version, _ in (case for case in CASES if case[3] == mode):
        if len(packet.expected_in(mode, version).always_one_of) < 2:
            continue
        model = _model(scenario.name, version, mode)
        first = model.outcome(_packet(packet, version))
        for target in first.targets:
            again = model.outcome(_packet(packet, version, remembered=target))
            assert again.targets == {target: Fraction(1)}
            tried += 1
        assert model.outcome(_packet(packet, version, remembered="10.244.9.9:80")) == first
    assert tried > 40
