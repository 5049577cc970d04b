"""Packets that kube-proxy's unit tests trace have the expected outcomes in knft's interpreter.

In mode nftables with knft's own rules, in mode iptables with those of ``knft render --backend iptables``.
"""

import ipaddress
from typing import Any

import pytest

from knft.comparison.captures import Rules
from knft.comparison.rendered import knft_rules, kube_proxy_rules
from knft.comparison.sides import address_ranges
from knft.families import Family
from knft.interpret.outcomes import Disposition, Outcome, PacketClass, PacketFields
from knft.interpret.ranges import Ranges, contains, single
from knft.interpret.walk.walker import Walker
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NUMBERS
from knft_compat import iptables
from tests.upstream.cases import Case, cases

_REFUSALS = {Disposition.REJECTED: "REJECT", Disposition.DROPPED: "DROP", Disposition.UNDECIDED: "undecided"}
_CASES = [
    pytest.param(mode, case, id=f"{mode} {case.name}")
    for mode in ("iptables", "nftables")
    for case in cases(mode)
    if case.flows
]


@pytest.mark.parametrize(("mode", "case"), _CASES)
def test_packets_have_expected_outcomes(mode: str, case: Case) -> None:
    version = Family(case.configuration["family"]).version
    own = address_ranges(case.local_addresses)[version]
    walker = Walker((_kube_proxy_rules(case) if mode == "iptables" else _knft_rules(case))[version], own)
    results = [(flow["name"], *_traced(walker, own, flow)) for flow in case.flows]
    assert results == [(flow["name"], _without_accept(flow["output"]), flow["masquerade"]) for flow in case.flows]


def _knft_rules(case: Case) -> Rules:
    return knft_rules(case.changes(), case.knft_config(), case.local_addresses)


def _kube_proxy_rules(case: Case) -> Rules:
    """Return the rules that ``knft render --backend iptables`` prints, as ``knft diff`` reads them."""
    settings = iptables.Settings(localhost_node_ports=case.configuration["localhostNodePorts"])
    return kube_proxy_rules(case.changes(), case.kube_proxy_options(settings)).rules


def _without_accept(output: str) -> str:
    """Return an expected output; a rule that accepts a packet has the same outcome as no rule."""
    return "" if output == "ACCEPT" else output


def _traced(walker: Walker, own: Ranges, flow: dict[str, Any]) -> tuple[str, bool]:
    """Return the endpoints, REJECT, DROP or nothing, and whether the packet is masqueraded, as the tests write it."""
    outcomes = [path.outcome for path in walker.paths(_packet(own, flow))]
    found = sorted({_end(outcome) for outcome in outcomes}, key=lambda end: _order(flow["output"], end))
    return ", ".join(found), any(outcome.source == "masqueraded" for outcome in outcomes)


def _packet(own: Ranges, flow: dict[str, Any]) -> PacketClass:
    source, destination = (int(ipaddress.ip_address(flow[name])) for name in ("source", "destination"))
    is_own = contains(own, source)
    fields = PacketFields(
        ports=single(flow["port"]),
        sources=single(source),
        inputs=frozenset({"" if is_own else "eth0"}),
        outputs=frozenset({"eth0"}),
        states=frozenset({"new"}),
    )
    protocol = PROTOCOL_NUMBERS[NFT_PROTOCOLS[flow["protocol"] or "TCP"]]
    return PacketClass("node" if is_own else "network", protocol, destination, contains(own, destination), fields)


def _end(outcome: Outcome) -> str:
    if outcome.disposition is not Disposition.DELIVERED:
        return _REFUSALS[outcome.disposition]
    if outcome.address is None:
        return ""
    address = ipaddress.ip_address(outcome.address)
    return f"[{address}]:{outcome.port}" if address.version == 6 else f"{address}:{outcome.port}"


def _order(output: str, end: str) -> int:
    """Return the place of an end in the expected output: an endpoint is chosen at random, and their order is free."""
    return output.find(end)
