"""Each expected difference is necessary, and none hides other differences."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from knft.comparison.compare import compare
from knft.comparison.sides import Sides
from knft.interpret.compare.edit import edit_chain, without_rules
from knft.interpret.compare.expected_differences import catalogue
from knft.interpret.compare.foreign import foreign_rules
from knft.interpret.compare.report import Report
from knft.interpret.rules import Collection, Rule, RuleSet, VirtualServer
from knft.proxy_mode import Mode
from tests.interpret.compare.rendered_sides import render_sides
from tests.support.differences_in_reports import reasons_in, unexpected_differences

LOCAL_ENDPOINT, REMOTE_ENDPOINT = {"addresses": ["10.244.1.11"], "nodeName": "node-1"}, {"addresses": ["10.244.2.11"]}
FLAGS = (
    "--node=node-1",
    "--service-cidr=10.96.0.0/16",
    "--cluster-cidr=10.244.0.0/16",
    "--local-address=192.0.2.11",
    "--local-address=10.244.1.1",
)
VIP, CLUSTER_IP = int.from_bytes((203, 0, 113, 2)), int.from_bytes((10, 96, 0, 10))


def _service(name: str, number: int, vips: tuple[str, ...] = (), port: int = 80, **spec: Any) -> dict[str, Any]:
    ports = [{"port": port, "protocol": "TCP"} | ({"nodePort": 30000 + number} if "type" in spec else {})]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "creationTimestamp": f"2026-01-{number}T00:00:00Z"},
        "spec": {"clusterIP": f"10.96.0.{number}", "ports": ports, **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": vip} for vip in vips]}},
    }


def _annotated(service: dict[str, Any], annotations: dict[str, str]) -> dict[str, Any]:
    return service | {"metadata": service["metadata"] | {"annotations": annotations}}


def _slice(service: str, *endpoints: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }


_BALANCED: dict[str, Any] = {"type": "LoadBalancer"}
_LOCAL: dict[str, Any] = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
OBJECTS = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
    },
    _service("sticky", 10, sessionAffinity="ClientIP", externalIPs=["203.0.113.1"], **_BALANCED),
    _slice("sticky", LOCAL_ENDPOINT, REMOTE_ENDPOINT),
    _service(
        "guarded", 11, vips=("203.0.113.2",), loadBalancerSourceRanges=["192.0.2.11/32", "198.51.100.0/25"], **_BALANCED
    ),
    _slice("guarded", LOCAL_ENDPOINT, REMOTE_ENDPOINT),
    _service("elsewhere", 12, externalIPs=["203.0.113.3"], healthCheckNodePort=31012, **_LOCAL),
    _slice("elsewhere", REMOTE_ENDPOINT),
    _service("here", 13, port=81, externalIPs=["10.96.0.10"], healthCheckNodePort=31013, **_LOCAL),
    _slice("here", LOCAL_ENDPOINT, REMOTE_ENDPOINT),
    _service("empty", 14, vips=("203.0.113.4",), loadBalancerSourceRanges=["198.51.100.0/24"], **_BALANCED),
    _service("a-thief", 15, externalIPs=["203.0.113.1"]),
    _slice("a-thief", REMOTE_ENDPOINT),
    # In IPVS mode the youngest Service owns the frontend, in knft the oldest.
    _service("older", 16, externalIPs=["203.0.113.5"]),
    _slice("older", LOCAL_ENDPOINT),
    _service("the-last", 17, externalIPs=["203.0.113.5"]),
    _slice("the-last", REMOTE_ENDPOINT),
    _annotated(_service("hashed", 18), {"knft.dev/load-balancing": "source-hash"}),
    _slice("hashed", LOCAL_ENDPOINT, REMOTE_ENDPOINT),
]
_CASES = [(item.reason, mode) for item in catalogue.EXPECTED_DIFFERENCES for mode in item.modes]
_ONLY_WITH_HOST_FIREWALL = {"forwarding rules": "filter FORWARD", "health check ports": "filter INPUT"}
"""Differences that only occur with a host firewall: the chain whose policy is drop, in iptables mode."""
_DROPPED_INVALID = "dropped invalid packets"
_ONLY_WITH_FLAGS = {_DROPPED_INVALID: ("--drop-invalid-packets", "--conntrack-tcp-be-liberal")}
"""Differences that only occur with these flags."""


@pytest.fixture(scope="module")
def rendered_sides() -> dict[Mode, Sides]:
    """kube-proxy's and knft's rules in each mode, for IPv4."""
    return {mode: _render_ipv4(mode) for mode in (Mode.IPTABLES, Mode.IPVS)}


def _render_ipv4(mode: Mode, *flags: str) -> Sides:
    sides = render_sides(mode, OBJECTS, [*FLAGS, *flags])
    return replace(sides, left={4: sides.left[4]}, right={4: sides.right[4]})


@pytest.fixture(scope="module")
def report_of(rendered_sides: dict[Mode, Sides]) -> Callable[[Mode], Report]:
    """The comparison of a mode's two sides with all entries of the catalogue, made once."""
    return cache(lambda mode: compare(rendered_sides[mode], lambda _, __: None))


def _with_firewall(sides: Sides, chain: str) -> Sides:
    rules = sides.left[4]
    bases = tuple(replace(base, policy="drop") if base.chain == chain else base for base in rules.base_chains)
    dropping = replace(rules, base_chains=bases)
    return replace(sides, left={4: dropping}, foreign={4: foreign_rules(dropping, sides.node_addresses[4])})


@pytest.mark.parametrize(("reason", "mode"), _CASES)
def test_each_entry_is_necessary(
    reason: str,
    mode: Mode,
    rendered_sides: dict[Mode, Sides],
    report_of: Callable[[Mode], Report],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its entry in the catalogue, a difference is unexpected."""
    sides = rendered_sides[mode]
    if reason in _ONLY_WITH_HOST_FIREWALL and mode is Mode.IPTABLES:
        sides = _with_firewall(sides, _ONLY_WITH_HOST_FIREWALL[reason])
        report = compare(sides, lambda _, __: None)
    elif reason in _ONLY_WITH_FLAGS:
        sides = _render_ipv4(mode, *_ONLY_WITH_FLAGS[reason])
        report = compare(sides, lambda _, __: None)
    else:
        report = report_of(mode)
    # A host firewall that drops in a chain of its own runs before knft rejects.
    assert unexpected_differences(report) == [] or sides.foreign
    assert reason in reasons_in(report)
    monkeypatch.setattr(
        catalogue,
        "EXPECTED_DIFFERENCES",
        tuple(item for item in catalogue.EXPECTED_DIFFERENCES if item.reason != reason),
    )
    assert len(unexpected_differences(compare(sides, lambda _, __: None))) > len(unexpected_differences(report))


@pytest.mark.parametrize(
    ("mode", "flags", "reasons"),
    [
        (Mode.IPTABLES, ("--drop-invalid-packets",), set()),
        (Mode.IPTABLES, ("--conntrack-tcp-be-liberal",), set()),
        (Mode.NFTABLES, (), set()),
        (Mode.NFTABLES, ("--drop-invalid-packets",), {_DROPPED_INVALID}),
    ],
)
def test_invalid_packets_differ_if_one_side_drops_them(mode: Mode, flags: tuple[str, ...], reasons: set[str]) -> None:
    """Against mode iptables, the option removes a difference."""
    report = compare(_render_ipv4(mode, *flags), lambda _, __: None)
    assert unexpected_differences(report) == []
    assert reasons_in(report) & {"invalid packets", _DROPPED_INVALID} == reasons


Mutation = Callable[[RuleSet], RuleSet]


def _without_element(name: str, *key: int) -> Mutation:
    """Return a mutation that removes the elements whose keys start with ``key``."""

    def mutate(rules: RuleSet) -> RuleSet:
        collection: Collection = rules.collections[name]
        kept = tuple(element for element in collection.elements if element.key[: len(key)] != key)
        assert len(kept) < len(collection.elements)
        return replace(rules, collections={**rules.collections, name: replace(collection, elements=kept)})

    return mutate


def _without_rule(chain: str, about: str) -> Mutation:
    def mutate(rules: RuleSet) -> RuleSet:
        assert any(about in rule.text for rule in rules.chains[chain].rules)
        return without_rules(rules, chain, lambda rule: about in rule.text)

    return mutate


def _empty_chain(chain: str) -> Mutation:
    """Return a mutation that empties a chain."""

    def nothing(_: Rule) -> tuple[Rule, ...]:
        return ()

    return lambda rules: edit_chain(rules, chain, nothing)


_MUTATIONS: dict[str, Mutation] = {
    "cluster IP missing": _without_element("ip knft cluster-ips", CLUSTER_IP),
    "frontend missing": _without_element("ip knft service-ips", CLUSTER_IP, 6, 80),
    "NodePort missing": _without_element("ip knft service-nodeports", 6, 30011),
    "NodePort without endpoints not rejected": _without_element("ip knft no-endpoint-nodeports", 6, 30014),
    "frontend without endpoints not rejected": _without_element("ip knft no-endpoint-services", VIP + 2),
    "no drop by externalTrafficPolicy Local": _without_element("ip knft no-endpoint-services", VIP + 1),
    "endpoint missing": _without_element("ip knft endpoints-tcp", VIP),
    "hairpin not masqueraded": _without_element("ip knft hairpin-connections"),
    "source ranges not checked": _without_element("ip knft guarded-frontends", VIP),
    "source range missing": _without_element("ip knft source-ranges", VIP, 6, 80),
    "no masquerading": _without_rule("ip knft masquerading", "mark"),
    "node not exempt from externalTrafficPolicy Local": _empty_chain("ip knft external-local-nodeport-pool-tcp-1-of-2"),
    "no reject rules": _empty_chain("ip knft reject-chain"),
    "no check of cluster IPs": _empty_chain("ip knft cluster-ips-check"),
}
_WITHOUT_EFFECT = {
    ("no check of cluster IPs", Mode.IPTABLES): "both of its effects are expected differences",
    ("no drop by externalTrafficPolicy Local", Mode.IPVS): "IPVS mode drops nothing here",
}
"""Mutations without a new difference, and why."""


@pytest.mark.parametrize("mode", [Mode.IPTABLES, Mode.IPVS])
@pytest.mark.parametrize("name", _MUTATIONS)
def test_mutation_of_knfts_rules_is_found(name: str, mode: Mode, rendered_sides: dict[Mode, Sides]) -> None:
    """An error in knft's rules is found although expected differences affect the same packets."""
    sides = rendered_sides[mode]
    report = compare(replace(sides, right={4: _MUTATIONS[name](sides.right[4])}), lambda _, __: None)
    assert report.is_equal is ((name, mode) in _WITHOUT_EFFECT)


def test_missing_real_server_is_found(rendered_sides: dict[Mode, Sides]) -> None:
    """An error in kube-proxy's rules is found as well."""
    sides = rendered_sides[Mode.IPVS]
    rules = sides.left[4]

    def cut(server: VirtualServer) -> VirtualServer:
        return replace(server, real_servers=server.real_servers[1:]) if server.address == VIP else server

    mutated = replace(rules, servers=tuple(map(cut, rules.servers)))
    assert not compare(replace(sides, left={4: mutated}), lambda _, __: None).is_equal
