"""Tests of metrics about Services and endpoints: changes, quarantine, contested frontends, health check ports."""

import socket
from typing import Any

import pytest

from knft.families import Family
from tests.serve.metric_values import RULES, changes_metrics, value
from tests.serve.node import MonitoredNode, load_balancer_service
from tests.support.kernel_harness import service, slices
from tests.support.lab.links import netlink
from tests.support.refused_services import refuse_address

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


@changes_metrics(
    f"{RULES}service_changes_total",
    f"{RULES}service_changes_pending",
    f"{RULES}endpoint_changes_total",
    f"{RULES}endpoint_changes_pending",
)
def test_total_and_pending_changes_are_counted(node: MonitoredNode) -> None:
    """Both families count a Service change, and each its own slices; pending changes are not added up."""

    def counts() -> list[float]:
        kinds = (
            "service_changes_total",
            "service_changes_pending",
            "endpoint_changes_total",
            "endpoint_changes_pending",
        )
        return [value(node, f"{RULES}{kind}") for kind in kinds]

    node.apply_and_sync()
    assert counts() == [0, 0, 0, 0]
    node.apply(service("a", 1), service("b", 2), *slices("a", [1]))
    assert counts() == [4, 2, 2, 1]
    node.apply(service("b", 2), *slices("a", [1]), *slices("a", [1, 2]))
    assert counts() == [6, 2, 6, 2]
    node.apply_and_sync()
    assert counts() == [6, 0, 6, 0]
    single: dict[str, Any] = {"clusterIP": "10.96.0.3", "clusterIPs": ["10.96.0.3"], "ipFamilies": ["IPv4"]}
    node.apply(service("c", 3, **single), *slices("c", [1])[:1])
    assert counts() == [8, 1, 7, 1]


@changes_metrics(f"{RULES}no_local_endpoints_total")
def test_service_ports_without_local_endpoints_are_counted(node: MonitoredNode) -> None:
    """Counts are by policy; Service ports without any endpoint and deleted ones do not count."""

    def counts(family: Family) -> list[float]:
        name = f"{RULES}no_local_endpoints_total"
        return [value(node, name, family, traffic_policy=policy) for policy in ("internal", "external")]

    node.apply_and_sync(
        service("in", 1, internalTrafficPolicy="Local"), load_balancer_service("out", 30100, 2), service("plain", 3)
    )
    assert counts(V4) == counts(V6) == [0, 0]
    node.apply_and_sync(*slices("in", [1]), *slices("out", [2]), *slices("plain", [3]))
    assert counts(V4) == counts(V6) == [1, 1]  # One port of "out" has endpoints.
    node.apply_and_sync(*slices("in", [1], local=[1])[:1])
    assert (counts(V4), counts(V6)) == ([0, 1], [1, 1])
    both = slices("out", [2])
    for each in both:
        each["ports"] = [{"name": "http", "port": 80}, {"name": "more", "port": 81}]
    node.apply_and_sync(*both)
    assert (counts(V4), counts(V6)) == ([0, 2], [1, 2])
    node.delete("Service", "out")
    node.apply(service("in", 1))
    node.apply_and_sync()
    assert counts(V4) == counts(V6) == [0, 0]


@changes_metrics("knft_quarantined_service_ports")
def test_quarantined_service_ports_are_counted_and_reported(node: MonitoredNode) -> None:
    """The Service gets an event when its port is quarantined, and another one when it has rules again."""

    def reported() -> list[tuple[str, str, bool, str, str]]:
        return [
            (event.regarding.kind, event.regarding.name, event.warning, event.reason, event.note)
            for event in node.events
        ]

    node.apply_and_sync()
    node.checked_tables[V4].on_commit = refuse_address("10.96.0.7")
    node.apply_and_sync(service("bad", 7), *slices("bad", [1]), service("good", 8))
    node.apply_and_sync()
    assert [value(node, "knft_quarantined_service_ports", family) for family in Family] == [1, 0]
    rules = "the IPv4 rules of node node-1"
    note = f"Service port default/bad:http is quarantined in {rules}; knft retries it: refused for the test"
    first = [
        ("Node", "node-1", False, "Starting", ""),
        ("Service", "bad", True, "FailedToProgramService", note),
    ]
    assert reported() == first
    node.checked_tables[V4].stop_failing()
    node.sync_clock.now += 40
    node.apply_and_sync(*slices("bad", [2]))
    assert value(node, "knft_quarantined_service_ports", V4) == 0
    recovery = f"Service default/bad is no longer quarantined in {rules}"
    recovered = ("Service", "bad", False, "ProgrammedService", recovery)
    assert reported() == [*first, recovered]
    node.apply_and_sync()
    assert reported() == [*first, recovered]


@changes_metrics("knft_too_large_services")
def test_service_that_is_too_large_is_counted_and_reported(node: MonitoredNode) -> None:
    """It gets one event for each family. The other Services are served, and so is this one when it is smaller."""
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 1001)]
    addresses = [f"203.0.113.{number}" for number in range(1, 61)]
    node.apply(service("huge", 7, ports=ports, externalIPs=addresses), service("good", 8))
    node.apply_and_sync()
    assert [value(node, "knft_too_large_services", family) for family in Family] == [1, 1]
    assert [value(node, "knft_service_ports", family) for family in Family] == [1, 1]
    notes = [event.note for event in node.events if event.regarding.name == "huge"]
    why = "its 1000 ports with 62 addresses have 62000 frontends"
    assert [note.partition(", and knft serves")[0] for note in notes] == [
        f"Service default/huge is too large and has no {family.value} rules on any node: {why}" for family in Family
    ]

    node.apply_and_sync(service("huge", 7, externalIPs=addresses))
    assert [value(node, "knft_too_large_services", family) for family in Family] == [0, 0]
    assert [value(node, "knft_service_ports", family) for family in Family] == [2, 2]
    assert len(node.events) == 1 + len(notes)


def test_service_that_is_too_large_is_logged_once(node: MonitoredNode, caplog: pytest.LogCaptureFixture) -> None:
    addresses = [f"{203 + number // 62_500}.0.{number // 250 % 250}.{number % 250 + 1}" for number in range(60_000)]
    node.apply(service("huge", 7, externalIPs=addresses))
    node.apply_and_sync()
    node.apply_and_sync(service("good", 8))
    assert caplog.text.count("Service default/huge is too large and is left out: its 1 ports") == len(Family)


def test_deleting_a_quarantined_service_sends_no_event(node: MonitoredNode) -> None:
    node.apply_and_sync()
    node.checked_tables[V4].on_commit = refuse_address("10.96.0.7")
    node.apply_and_sync(service("bad", 7), *slices("bad", [1]), service("good", 8))
    node.delete("Service", "bad")
    node.checked_tables[V4].stop_failing()
    node.sync_clock.now += 40
    node.apply_and_sync()
    assert value(node, "knft_quarantined_service_ports", V4) == 0
    assert [event.reason for event in node.events] == ["Starting", "FailedToProgramService"]


@changes_metrics("knft_contested_frontends")
def test_contested_frontends_are_counted(node: MonitoredNode) -> None:
    for name, number in (("a", 1), ("b", 2)):
        node.apply(service(name, number, externalIPs=["203.0.113.1"]))
    node.apply_and_sync()
    assert [value(node, "knft_contested_frontends", family) for family in Family] == [1, 0]
    node.delete("Service", "a")
    node.apply_and_sync()
    assert value(node, "knft_contested_frontends", V4) == 0


@changes_metrics("knft_health_check_services", "knft_health_check_listen_failures_total")
def test_health_check_ports_and_listen_failures_are_counted(node: MonitoredNode) -> None:
    addresses = [{"type": "InternalIP", "address": address} for address in ("192.0.2.1", "2001:db8::1")]
    node.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}})
    with netlink(node.namespace) as link:
        link.add_loopback_address("192.0.2.1")
        link.add_loopback_address("2001:db8::1")
    with socket.create_server(("192.0.2.1", 30100)):
        node.apply_and_sync(load_balancer_service("web", 30100), load_balancer_service("more", 30101, 20))
    assert [value(node, "knft_health_check_services", family) for family in Family] == [1, 2]
    assert [value(node, "knft_health_check_listen_failures_total", family) for family in Family] == [1, 0]
    node.apply_and_sync()
    assert value(node, "knft_health_check_services", V4) == 2
