"""The metrics of Services and their endpoints: what has changed, and what is not as its owner wants it."""

import socket
from typing import Any

import pytest

from knft.model.names import Family
from tests.kernel.harness import service, slices
from tests.kernel.poison import refusing
from tests.serve.moving import RULES, moves, value
from tests.serve.node import ServedNode, health_checked

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


@moves(
    f"{RULES}service_changes_total",
    f"{RULES}service_changes_pending",
    f"{RULES}endpoint_changes_total",
    f"{RULES}endpoint_changes_pending",
)
def test_changes_that_come_and_wait(node: ServedNode) -> None:
    """Both families count a Service's change, and each its own slices; what waits is not added up."""

    def counts() -> list[float]:
        kinds = (
            "service_changes_total",
            "service_changes_pending",
            "endpoint_changes_total",
            "endpoint_changes_pending",
        )
        return [value(node, f"{RULES}{kind}") for kind in kinds]

    node.synced()
    assert counts() == [0, 0, 0, 0]
    node.apply(service("a", 1), service("b", 2), *slices("a", [1]))
    assert counts() == [4, 2, 2, 1]
    node.apply(service("b", 2), *slices("a", [1]), *slices("a", [1, 2]))
    assert counts() == [6, 2, 6, 2]
    node.synced()
    assert counts() == [6, 0, 6, 0]
    single: dict[str, Any] = {"clusterIP": "10.96.0.3", "clusterIPs": ["10.96.0.3"], "ipFamilies": ["IPv4"]}
    node.apply(service("c", 3, **single), *slices("c", [1])[:1])
    assert counts() == [8, 1, 7, 1]


@moves(f"{RULES}no_local_endpoints_total")
def test_service_ports_without_local_endpoints(node: ServedNode) -> None:
    """By policy; those that have no endpoints anywhere are not counted, nor those that are gone."""

    def counts(family: Family) -> list[float]:
        name = f"{RULES}no_local_endpoints_total"
        return [value(node, name, family, traffic_policy=policy) for policy in ("internal", "external")]

    node.synced(service("in", 1, internalTrafficPolicy="Local"), health_checked("out", 30100, 2), service("plain", 3))
    assert counts(V4) == counts(V6) == [0, 0]
    node.synced(*slices("in", [1]), *slices("out", [2]), *slices("plain", [3]))
    assert counts(V4) == counts(V6) == [1, 1]  # Of "out" one port has endpoints.
    node.synced(*slices("in", [1], local=[1])[:1])
    assert (counts(V4), counts(V6)) == ([0, 1], [1, 1])
    both = slices("out", [2])
    for each in both:
        each["ports"] = [{"name": "http", "port": 80}, {"name": "more", "port": 81}]
    node.synced(*both)
    assert (counts(V4), counts(V6)) == ([0, 2], [1, 2])
    node.delete("Service", "out")
    node.apply(service("in", 1))
    node.synced()
    assert counts(V4) == counts(V6) == [0, 0]


@moves("knft_left_out_service_ports")
def test_service_ports_that_are_left_out(node: ServedNode) -> None:
    """Their Services get an event, each time anew, and another one when they are back."""

    def told() -> list[tuple[str, ...]]:
        return [(event.kind, event.name, event.type, event.reason, event.note) for event in node.events]

    node.synced()
    node.ports[V4].meddle = refusing("10.96.0.7")
    node.synced(service("bad", 7), *slices("bad", [1]), service("good", 8))
    node.synced()
    assert [value(node, "knft_left_out_service_ports", family) for family in Family] == [1, 0]
    note = "left out of the IPv4 rules of node node-1, and tried again: default/bad:http: poison"
    first = [
        ("Node", "node-1", "Normal", "Starting", ""),
        ("Service", "bad", "Warning", "FailedToProgramService", note),
    ]
    assert told() == first
    node.ports[V4].heal()
    node.timer.now += 40
    node.synced(*slices("bad", [2]))
    assert value(node, "knft_left_out_service_ports", V4) == 0
    back = ("Service", "bad", "Normal", "ProgrammedService", "no longer left out of the IPv4 rules of node node-1")
    assert told() == [*first, back]
    node.synced()
    assert told() == [*first, back]


def test_a_service_that_is_deleted_while_it_is_left_out_is_not_back(node: ServedNode) -> None:
    node.synced()
    node.ports[V4].meddle = refusing("10.96.0.7")
    node.synced(service("bad", 7), *slices("bad", [1]), service("good", 8))
    node.delete("Service", "bad")
    node.ports[V4].heal()
    node.timer.now += 40
    node.synced()
    assert value(node, "knft_left_out_service_ports", V4) == 0
    assert [event.reason for event in node.events] == ["Starting", "FailedToProgramService"]


@moves("knft_lost_frontends")
def test_frontends_that_two_services_claim(node: ServedNode) -> None:
    for name, number in (("a", 1), ("b", 2)):
        node.apply(service(name, number, externalIPs=["203.0.113.1"]))
    node.synced()
    assert [value(node, "knft_lost_frontends", family) for family in Family] == [1, 0]
    node.delete("Service", "a")
    node.synced()
    assert value(node, "knft_lost_frontends", V4) == 0


@moves("knft_health_check_services", "knft_health_check_listen_failures_total")
def test_health_check_ports(node: ServedNode) -> None:
    addresses = [{"type": "InternalIP", "address": address} for address in ("192.0.2.1", "2001:db8::1")]
    node.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}})
    node.namespace.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
    node.namespace.run(["ip", "address", "add", "2001:db8::1/128", "dev", "lo", "nodad"])
    with socket.create_server(("192.0.2.1", 30100)):
        node.synced(health_checked("web", 30100), health_checked("more", 30101, 20))
    assert [value(node, "knft_health_check_services", family) for family in Family] == [1, 2]
    assert [value(node, "knft_health_check_listen_failures_total", family) for family in Family] == [1, 0]
    node.synced()
    assert value(node, "knft_health_check_services", V4) == 2
