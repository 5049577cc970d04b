"""Every metric by its name, type, labels and buckets, as behaviour.md H lists them; and each is made to move.

What moves them is real: syncs into a kernel, damage that others do there, requests over HTTP. Time is the test's.
"""

import functools
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from knft.kernel.notifications import ForeignChanges
from knft.model.names import Family
from knft.render.names import TABLE
from tests.kernel.harness import service, slices
from tests.kernel.poison import refusing
from tests.lab.namespace import Namespace
from tests.serve.node import HEALTH, METRICS, ServedNode, eventually, health_checked

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


class Expected(Struct, frozen=True):
    """What a metric is."""

    type: str
    labels: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()


SYNC_BUCKETS = (
    "0.001",
    "0.002",
    "0.004",
    "0.008",
    "0.016",
    "0.032",
    "0.064",
    "0.128",
    "0.256",
    "0.512",
    "1.024",
    "2.048",
    "4.096",
    "8.192",
    "16.384",
    "+Inf",
)
PROGRAMMING_BUCKETS = (
    "0.25", "0.5", *map(str, range(1, 60)), *map(str, range(60, 116, 5)), *map(str, range(120, 301, 30)), "+Inf",
)  # fmt: skip
REQUEST_BUCKETS = ("0.005", "0.025", "0.1", "0.25", "0.5", "1", "2", "4", "8", "15", "30", "60", "+Inf")
BY_FAMILY = ("ip_family",)

UPSTREAM = {
    "kubeproxy_sync_proxy_rules_duration_seconds": Expected("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_sync_full_proxy_rules_duration_seconds": Expected("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_sync_partial_proxy_rules_duration_seconds": Expected("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds": Expected("gauge", BY_FAMILY),
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds": Expected("gauge", BY_FAMILY),
    "kubeproxy_network_programming_duration_seconds": Expected("histogram", BY_FAMILY, PROGRAMMING_BUCKETS),
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending": Expected("gauge"),
    "kubeproxy_sync_proxy_rules_endpoint_changes_total": Expected("counter"),
    "kubeproxy_sync_proxy_rules_service_changes_pending": Expected("gauge"),
    "kubeproxy_sync_proxy_rules_service_changes_total": Expected("counter"),
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total": Expected("gauge", ("ip_family", "traffic_policy")),
    "kubeproxy_proxy_healthz_total": Expected("counter", ("code",)),
    "kubeproxy_proxy_livez_total": Expected("counter", ("code",)),
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total": Expected("counter", BY_FAMILY),
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total": Expected("counter", BY_FAMILY),
    "kubeproxy_conntrack_reconciler_sync_duration_seconds": Expected("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_conntrack_reconciler_deleted_entries_total": Expected("counter", BY_FAMILY),
    "rest_client_requests_total": Expected("counter", ("code", "host", "method")),
    "rest_client_request_duration_seconds": Expected("histogram", ("host", "verb"), REQUEST_BUCKETS),
}

OWN = {
    "knft_build_info": Expected("gauge", ("python", "version")),
    "knft_sync_kernel_duration_seconds": Expected("histogram", BY_FAMILY, SYNC_BUCKETS),
    "knft_elements_sent_total": Expected("counter", ("ip_family", "operation")),
    "knft_chains_written_total": Expected("counter", BY_FAMILY),
    "knft_service_ports": Expected("gauge", BY_FAMILY),
    "knft_left_out_service_ports": Expected("gauge", BY_FAMILY),
    "knft_lost_frontends": Expected("gauge", BY_FAMILY),
    "knft_unswept": Expected("gauge", BY_FAMILY),
    "knft_foreign_changes_total": Expected("counter", BY_FAMILY),
    "knft_audit_differences_total": Expected("counter", BY_FAMILY),
    "knft_library_starts_total": Expected("counter"),
    "knft_health_check_services": Expected("gauge", BY_FAMILY),
    "knft_health_check_listen_failures_total": Expected("counter", BY_FAMILY),
}

INDICATORS = {
    "kubernetes_healthcheck": Expected("gauge", ("name", "type")),
    "kubernetes_healthchecks_total": Expected("counter", ("name", "status", "type")),
}

_OTHER_MODE = "of another mode"
_GATE = "of a gate that is off by default (C.8): knft serves no NodePorts on loopback"
ABSENT = {
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total": _OTHER_MODE,
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": _OTHER_MODE,
    "kubeproxy_sync_proxy_rules_iptables_total": _OTHER_MODE,
    "kubeproxy_sync_proxy_rules_iptables_last": _OTHER_MODE,
    "kubeproxy_iptables_ct_state_invalid_dropped_packets_total": _OTHER_MODE,
    "kubeproxy_iptables_localhost_nodeports_accepted_packets_total": _OTHER_MODE,
    "kubeproxy_nftables_localhost_nodeport_listeners": _GATE,
    "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": _GATE,
    "kubeproxy_nftables_localhost_nodeport_rejected_packets_total": _GATE,
    "kubernetes_build_info": "alerts of version skew compare it with the API server's; knft_build_info has knft's own",
    "kubernetes_feature_enabled": "there are no feature gates",
    "registered_metrics_total": "about kube-proxy's own registry",
    "hidden_metrics_total": "about kube-proxy's own registry",
    "disabled_metrics_total": "about kube-proxy's own registry",
    "go_goroutines": "of Go; python_* and process_* say the like",
}

PROCESS = {
    "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
    "process_cpu_seconds_total", "process_open_fds", "process_max_fds",
    "python_info", "python_gc_objects_collected_total", "python_gc_objects_uncollectable_total",
    "python_gc_collections_total",
}  # fmt: skip


@pytest.fixture
def node(namespace: Namespace) -> Iterator[ServedNode]:
    with ServedNode(namespace) as node:
        yield node


_SERIES = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def _of(series: dict[str, float], name: str) -> dict[str, float]:
    """Return the series of one metric."""
    ends = ("", "_bucket", "_count", "_sum") if name.endswith("_seconds") else ("",)
    return {key: value for key, value in series.items() if key.partition("{")[0] in {name + end for end in ends}}


MOVED: set[str] = set()
Move = Callable[[ServedNode], None]


def moves(*names: str) -> Callable[[Move], Move]:
    """Mark a test that moves these metrics; that they have other values after it is held here."""
    MOVED.update(names)

    def decorate(test: Move) -> Move:
        @functools.wraps(test)
        def checked(node: ServedNode) -> None:
            before = {**node.scrape(), **node.scrape("/metrics/slis")}
            test(node)
            after = {**node.scrape(), **node.scrape("/metrics/slis")}
            for name in names:
                assert _of(after, name) != _of(before, name), f"{name} has not moved"

        return checked

    return decorate


def value(node: ServedNode, name: str, family: Family | None = None, **labels: str) -> float:
    """Return a series' value."""
    known = ({"ip_family": family.value} if family is not None else {}) | labels
    text = ",".join(f'{label}="{known[label]}"' for label in sorted(known))
    return node.scrape()[f"{name}{{{text}}}" if text else name]


RULES = "kubeproxy_sync_proxy_rules_"


@moves(
    f"{RULES}duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "knft_sync_kernel_duration_seconds",
)
def test_syncs_are_timed(node: ServedNode) -> None:
    """The first compares everything; the others send what has changed. The clock passes in the kernel alone."""
    for port in node.ports.values():
        port.meddle = lambda _: setattr(node.timer, "now", node.timer.now + 0.003)
    node.synced(service("web"), *slices("web", [1]))
    node.synced(*slices("web", [2]))
    node.synced(*slices("web", [3]))
    for family in Family:
        assert value(node, f"{RULES}duration_seconds_count", family) == 3
        assert value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_count", family) == 1
        assert value(node, "kubeproxy_sync_partial_proxy_rules_duration_seconds_count", family) == 2
        assert value(node, "knft_sync_kernel_duration_seconds_count", family) == 3
        part = value(node, "kubeproxy_sync_partial_proxy_rules_duration_seconds_sum", family)
        full = value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_sum", family)
        assert part == pytest.approx(0.006)
        assert value(node, f"{RULES}duration_seconds_sum", family) == pytest.approx(full + part)
        assert value(node, f"{RULES}duration_seconds_bucket", family, le="0.002") == 0
        assert value(node, f"{RULES}duration_seconds_bucket", family, le="+Inf") == 3
        assert value(node, "knft_sync_kernel_duration_seconds_sum", family) == pytest.approx(full + part)


@moves(f"{RULES}last_timestamp_seconds", f"{RULES}last_queued_timestamp_seconds")
def test_when_the_last_sync_was(node: ServedNode) -> None:
    """And when one was asked for, which is before that."""
    began = node.clock.seconds
    assert value(node, f"{RULES}last_queued_timestamp_seconds", V4) == began
    node.clock.pass_time(10)
    node.apply(service("web"))
    node.clock.pass_time(5.5)
    node.synced()
    for family in Family:
        assert value(node, f"{RULES}last_queued_timestamp_seconds", family) == began + 10
        assert value(node, f"{RULES}last_timestamp_seconds", family) == began + 15.5
    node.clock.pass_time(100)
    for port in node.ports.values():
        port.refuse = port.refuse_reads = 1000
    node.apply(service("more", 20))
    assert not node.daemon.sync()
    assert value(node, f"{RULES}last_queued_timestamp_seconds", V4) == began + 115.5
    assert value(node, f"{RULES}last_timestamp_seconds", V4) == began + 15.5


def _timed(node: ServedNode, name: str, numbers: list[int], ago: float) -> list[dict[str, Any]]:
    """Return the slices of a Service, changed so many seconds ago."""
    moment = datetime.fromtimestamp(node.clock.seconds - ago, UTC).isoformat().replace("+00:00", "Z")
    made = slices(name, numbers)
    for each in made:
        each["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": moment}
    return made


@moves("kubeproxy_network_programming_duration_seconds")
def test_the_latency_of_network_programming(node: ServedNode) -> None:
    """From the moment that is written in the slice; those of failed syncs count when one succeeds."""
    name = "kubeproxy_network_programming_duration_seconds"
    node.synced(service("web"), *_timed(node, "web", [1], 0.4))
    for port in node.ports.values():
        port.refuse = port.refuse_reads = 1000
    node.apply(*_timed(node, "web", [1, 2], 1))
    node.clock.pass_time(61)
    assert not node.daemon.sync()
    for port in node.ports.values():
        port.heal()
    node.synced()
    for family in Family:
        counts = [value(node, f"{name}_bucket", family, le=bound) for bound in ("0.25", "0.5", "60", "65", "+Inf")]
        assert counts == [0, 1, 1, 2, 2]
        assert value(node, f"{name}_sum", family) == pytest.approx(62.4)


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


@moves("kubeproxy_proxy_healthz_total", "kubeproxy_proxy_livez_total")
def test_probes_are_counted_by_their_answer(node: ServedNode) -> None:
    for _ in range(2):
        node.get(HEALTH, "/healthz")
    node.eligible = False
    node.get(HEALTH, "/healthz")
    node.get(HEALTH, "/livez")
    node.serving.health.queued(V4)
    node.clock.pass_time(60)
    for _ in range(3):
        node.get(HEALTH, "/livez")
    node.get(HEALTH, "/nothing")
    probes = [("healthz", "200"), ("healthz", "503"), ("livez", "200"), ("livez", "503")]
    assert [value(node, f"kubeproxy_proxy_{probe}_total", code=code) for probe, code in probes] == [2, 1, 1, 3]


@moves(
    f"{RULES}nftables_sync_failures_total",
    f"{RULES}duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
)
def test_syncs_that_fail(node: ServedNode) -> None:
    """Of the family that they are about; they take their time as well."""
    node.synced(service("web"))
    node.ports[V4].refuse = node.ports[V4].refuse_reads = 1000
    node.apply(*slices("web", [1]))
    assert not node.daemon.sync()
    assert not node.daemon.sync()
    name = f"{RULES}nftables_sync_failures_total"
    assert value(node, name, V4) == 2
    assert f'{name}{{ip_family="IPv6"}}' not in node.scrape()
    assert value(node, f"{RULES}duration_seconds_count", V4) == 3
    assert value(node, "kubeproxy_sync_full_proxy_rules_duration_seconds_count", V4) == 3
    node.ports[V4].heal()
    node.synced()
    assert value(node, name, V4) == 2


@moves(f"{RULES}nftables_cleanup_failures_total", "knft_unswept")
def test_what_cannot_be_removed(node: ServedNode) -> None:
    """Each refusal counts once, however many syncs see that the rest is still there."""
    name = f"{RULES}nftables_cleanup_failures_total"
    node.synced(service("gone", 77), *slices("gone", [11]), service("web", 8))
    node.delete("Service", "gone")
    node.ports[V4].meddle = refusing("10.96.0.77")
    node.synced()
    assert (value(node, name, V4), value(node, "knft_unswept", V4), value(node, "knft_unswept", V6)) == (1, 1, 0)
    node.synced(*slices("web", [1]))
    assert value(node, name, V4) == 1
    node.timer.now += 40
    node.synced()
    assert (value(node, name, V4), value(node, "knft_unswept", V4)) == (2, 1)
    node.ports[V4].heal()
    node.timer.now += 4000
    node.synced()
    assert (value(node, name, V4), value(node, "knft_unswept", V4)) == (2, 0)


def test_chains_that_cannot_be_deleted_are_cleanups_that_failed(node: ServedNode) -> None:
    """Somebody's rule leads to one that a sticky Service port had."""
    node.synced(service("web", sessionAffinity="ClientIP"), *slices("web", [1]))
    chain = next(name for name in node.held().chains if name.startswith("sticky-"))
    node.namespace.run(["nft", f"add chain ip knft theirs; add rule ip knft theirs jump {chain}"])
    node.delete("Service", "web")
    node.synced()
    node.timer.now += 2
    node.synced()
    assert value(node, f"{RULES}nftables_cleanup_failures_total", V4) == 1
    assert f'{RULES}nftables_cleanup_failures_total{{ip_family="IPv6"}}' not in node.scrape()


@moves("kubeproxy_conntrack_reconciler_sync_duration_seconds", "kubeproxy_conntrack_reconciler_deleted_entries_total")
def test_what_the_conntrack_reconciler_tells(node: ServedNode) -> None:
    node.serving.metrics.conntrack_reconciled(V4, 0.003, 5)
    node.serving.metrics.conntrack_reconciled(V4, 0.0005, 0)
    duration = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
    assert [value(node, f"{duration}_bucket", V4, le=bound) for bound in ("0.001", "0.002", "0.004")] == [1, 1, 2]
    assert value(node, "kubeproxy_conntrack_reconciler_deleted_entries_total", V4) == 5


@moves("rest_client_requests_total", "rest_client_request_duration_seconds")
def test_what_the_client_of_the_api_server_tells(node: ServedNode) -> None:
    for code, seconds in (("200", 0.01), ("200", 3.0), ("<error>", 0.001)):
        node.serving.metrics.api_request(code, "GET", "10.96.0.1:443", seconds)
    labels: dict[str, Any] = {"method": "GET", "host": "10.96.0.1:443"}
    assert [value(node, "rest_client_requests_total", code=code, **labels) for code in ("200", "<error>")] == [2, 1]
    bucket: dict[str, Any] = {"verb": "GET", "host": "10.96.0.1:443"}
    found = [value(node, "rest_client_request_duration_seconds_bucket", **bucket, le=le) for le in ("0.005", "1", "60")]
    assert found == [1, 2, 3]


@moves("knft_elements_sent_total", "knft_chains_written_total", "knft_service_ports")
def test_what_was_sent(node: ServedNode) -> None:
    """As many elements as the kernel has at the end, all in all."""

    def sent(family: Family) -> list[float]:
        return [value(node, "knft_elements_sent_total", family, operation=operation) for operation in ("add", "remove")]

    node.synced(service("web"), *slices("web", [1, 2, 3]))
    first = sent(V4)
    assert first[0] > 4
    assert first[1] == 0
    node.synced(*slices("web", [1, 2, 9]))
    assert sent(V4) == [first[0] + 1, 1]  # One endpoint in the place of another.
    assert value(node, "knft_service_ports", V4) == 1
    chains = value(node, "knft_chains_written_total", V4)
    node.synced(service("sticky", 20, sessionAffinity="ClientIP"), *slices("sticky", [1]))
    assert value(node, "knft_chains_written_total", V4) > chains > 5
    assert value(node, "knft_service_ports", V6) == 2


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


@moves("knft_foreign_changes_total")
def test_changes_of_others(node: ServedNode) -> None:
    node.synced()
    stop = threading.Event()
    with ForeignChanges(TABLE) as others:
        thread = threading.Thread(target=node.daemon.listen, args=[others, stop])
        thread.start()
        node.namespace.run(["nft", "add", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.99 }"])
        eventually(lambda: value(node, "knft_foreign_changes_total", V4) == 1)
        stop.set()
        others.stop()
        thread.join()
    assert value(node, "knft_foreign_changes_total", V6) == 0


@moves("knft_audit_differences_total")
def test_differences_that_an_audit_finds(node: ServedNode) -> None:
    node.synced(service("web"))
    node.namespace.run(["nft", "add", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.98, 10.96.0.99 }"])
    assert node.daemon.audit()
    assert [value(node, "knft_audit_differences_total", family) for family in Family] == [2, 0]


@moves("knft_library_starts_total")
def test_processes_of_the_library(node: ServedNode) -> None:
    from tests.kernel.nft_process import library_in

    node.synced()
    before = value(node, "knft_library_starts_total")
    library = library_in(node.namespace)._process
    assert library.pid is not None
    os.kill(library.pid, signal.SIGKILL)
    with node.namespace.entered():
        assert library.dies_within(20)
    assert value(node, "knft_library_starts_total") == before + 1


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


@moves("kubernetes_healthcheck", "kubernetes_healthchecks_total")
def test_indicators(node: ServedNode) -> None:
    """On a page of their own."""
    for _ in range(2):
        node.get(METRICS, "/healthz")
    found = node.scrape("/metrics/slis")
    assert found == {
        'kubernetes_healthcheck{name="ping",type="healthz"}': 1,
        'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"}': 2,
    }


@moves("process_cpu_seconds_total")
def test_the_process_itself(node: ServedNode) -> None:
    before = node.scrape()
    with socket.socket(), socket.socket():
        assert node.scrape()["process_open_fds"] == before["process_open_fds"] + 2
    eventually(lambda: node.scrape()["process_cpu_seconds_total"] > before["process_cpu_seconds_total"])


def _everything(node: ServedNode) -> None:
    """Give every metric with labels a value."""
    node.ports[V4].meddle = refusing("10.96.0.77")
    node.synced(service("web"), *_timed(node, "web", [1], 1))
    node.synced(service("web", 11))
    node.ports[V4].refuse = node.ports[V4].refuse_reads = 1000
    node.apply(service("more", 20))
    node.daemon.sync()
    node.ports[V4].heal()
    node.synced(service("gone", 77))
    node.delete("Service", "gone")
    node.ports[V4].meddle = refusing("10.96.0.77")
    node.synced()
    node.get(HEALTH, "/healthz")
    node.get(HEALTH, "/livez")
    node.get(METRICS, "/healthz")
    node.serving.metrics.conntrack_reconciled(V4, 0.1, 1)
    node.serving.metrics.api_request("200", "GET", "host:6443", 0.1)


def _described(text: str) -> dict[str, Expected]:
    """Return what a scrape says of its metrics: type, labels, and the bounds of buckets in their order."""
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    labels: dict[str, set[str]] = {name: set() for name in types}
    bounds: dict[str, dict[frozenset[tuple[str, str]], list[str]]] = {name: {} for name in types}
    for line in text.splitlines():
        matched = _SERIES.match(line)
        if line.startswith("#") or matched is None:
            continue
        name = next(name for name in types if matched[1] in (name, f"{name}_bucket", f"{name}_count", f"{name}_sum"))
        found = dict(_LABEL.findall(matched[2] or ""))
        bound = found.pop("le", None)
        labels[name] |= found.keys()
        if bound is not None:
            bounds[name].setdefault(frozenset(found.items()), []).append(bound)
    assert all(len(set(map(tuple, each.values()))) <= 1 for each in bounds.values())
    buckets = {name: next(iter(each.values()), []) for name, each in bounds.items()}
    return {name: Expected(types[name], tuple(sorted(labels[name])), tuple(buckets[name])) for name in types}


def test_every_metric_is_there_as_it_is_listed_and_no_other(node: ServedNode) -> None:
    _everything(node)
    found = _described(node.get(METRICS, "/metrics").body.decode())
    assert found.keys() & PROCESS == PROCESS
    assert {name: known for name, known in found.items() if name not in PROCESS} == UPSTREAM | OWN
    assert _described(node.get(METRICS, "/metrics/slis").body.decode()) == INDICATORS


def test_what_is_left_out_on_purpose_is_not_there(node: ServedNode) -> None:
    _everything(node)
    names = {key.partition("{")[0] for key in node.scrape()}
    assert names.isdisjoint(ABSENT)
    assert not [name for name in names if name.startswith("go_") or name.endswith("_created")]
    assert all(ABSENT.values())


def test_every_metric_has_help_of_one_line(node: ServedNode) -> None:
    text = node.get(METRICS, "/metrics").body.decode()
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP") and len(line.split()) > 4}
    assert helped >= UPSTREAM.keys() | OWN.keys()


def test_every_listed_metric_is_made_to_move() -> None:
    """The versions at work alone cannot."""
    assert {*UPSTREAM, *OWN, *INDICATORS} - {"knft_build_info"} == MOVED - PROCESS


def test_the_readme_tells_of_knfts_own_metrics_and_of_those_that_are_not_there() -> None:
    told = (Path(__file__).parents[2] / "README.md").read_text()
    assert [name for name in OWN if f"`{name}" not in told] == []
    general = {_OTHER_MODE: "*_iptables_*", _GATE: "nftables_localhost_nodeport_*", ABSENT["go_goroutines"]: "go_*"}
    assert [name for name, reason in ABSENT.items() if f"`{general.get(reason, name)}`" not in told] == []


def test_series_with_labels_are_there_from_their_first_value_on(node: ServedNode) -> None:
    """As in kube-proxy: an alert on a rate must not see a restart as a failure."""
    assert not [key for key in node.scrape() if "failures_total{" in key and not key.startswith("knft_health")]
