"""Tests that the metrics are exactly the expected ones, and that a test of another module changes each of them."""

import importlib
import re
import socket
from fnmatch import fnmatch
from pathlib import Path

import pytest
from msgspec import structs

from knft.families import Family
from knft.forwarder.forwarder import Forwarder
from knft.forwarder.messages import Report
from knft.serve.localhost_nodeports import LocalhostNodePortsCollector
from knft.serve.metrics import Metrics
from tests.serve.metric_values import CHANGED_METRICS, slices_changed_ago
from tests.serve.node import HEALTH, METRICS, MonitoredNode
from tests.support.expected_metrics import (
    ABSENT_METRICS,
    INVALID_PACKET_METRICS,
    KNFT_METRICS,
    KUBE_PROXY_METRICS,
    LOCALHOST_NODEPORT_METRICS,
    LOCALHOST_REJECTION_METRICS,
    PROCESS_METRICS,
    SERVICE_COUNTER_METRICS,
    SLI_METRICS,
    ExpectedMetric,
)
from tests.support.kernel_harness import CONFIG, service
from tests.support.lab.namespace import Namespace
from tests.support.refused_services import refuse_address

pytestmark = pytest.mark.kernel
V4 = Family.IPV4
MODULES = ("sync", "service", "process")


_SERIES = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def _set_every_metric(node: MonitoredNode) -> None:
    """Give every labelled metric a value."""
    node.checked_tables[V4].on_commit = refuse_address("10.96.0.77")
    node.apply_and_sync(service("web"), *slices_changed_ago(node, "web", [1], 1))
    node.apply_and_sync(service("web", 11))
    node.checked_tables[V4].refused_commits = node.checked_tables[V4].refused_reads = 1000
    node.apply(service("more", 20))
    node.daemon.sync()
    node.checked_tables[V4].stop_failing()
    node.apply_and_sync(service("gone", 77))
    node.delete("Service", "gone")
    node.checked_tables[V4].on_commit = refuse_address("10.96.0.77")
    node.apply_and_sync()
    node.get(HEALTH, "/healthz")
    node.get(HEALTH, "/livez")
    node.get(METRICS, "/healthz")
    node.monitoring.metrics.observe_conntrack_reconcile(V4, 0.1, 1)
    node.monitoring.metrics.count_ended_connections(V4, 1)
    node.monitoring.metrics.observe_api_request("200", "GET", "host:6443", 0.1)
    node.monitoring.kernel_counters.read()


def _parse_metrics(text: str) -> dict[str, ExpectedMetric]:
    """Return the metrics of a scrape: type, labels, and bucket bounds in order."""
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
    return {name: ExpectedMetric(types[name], tuple(sorted(labels[name])), tuple(buckets[name])) for name in types}


def test_metrics_are_exactly_the_expected_ones(node: MonitoredNode) -> None:
    _set_every_metric(node)
    found = _parse_metrics(node.get(METRICS, "/metrics").body.decode())
    assert found.keys() & PROCESS_METRICS == PROCESS_METRICS
    assert {
        name: known for name, known in found.items() if name not in PROCESS_METRICS
    } == KUBE_PROXY_METRICS | KNFT_METRICS
    assert _parse_metrics(node.get(METRICS, "/metrics/slis").body.decode()) == SLI_METRICS


def test_metrics_of_service_ports_are_exactly_the_expected_ones(namespace: Namespace) -> None:
    with MonitoredNode(namespace, structs.replace(CONFIG, service_counters=True)) as node:
        node.apply_and_sync(service("web"), service("db", 11))
        first = _service_series(node)
        namespace.run(["ip", "route", "add", "local", "10.96.0.0/16", "dev", "lo"])
        with socket.socket() as client:
            client.settimeout(0)  # A client that waits in connect() misses the rejection, and sends again.
            client.connect_ex(("10.96.0.10", 80))
        assert _service_series(node) == first
        node.monitoring.kernel_counters.read()
        found = _parse_metrics(node.get(METRICS, "/metrics").body.decode())
        series = _service_series(node)
    assert first == {}
    assert series == {
        'knft_service_connections_total{namespace="default",port="http",service="db"}': 0,
        'knft_service_connections_total{namespace="default",port="http",service="web"}': 1,
        'knft_service_refused_connections_total{action="rejected",namespace="default",port="http",service="web"}': 1,
    }
    assert {name: found[name] for name in SERVICE_COUNTER_METRICS} == SERVICE_COUNTER_METRICS


def test_dropped_invalid_packets_are_a_metric_with_the_option(namespace: Namespace) -> None:
    with MonitoredNode(namespace, structs.replace(CONFIG, drop_invalid_packets=True)) as node:
        node.apply_and_sync(service("web"))
        node.monitoring.kernel_counters.read()
        found = _parse_metrics(node.get(METRICS, "/metrics").body.decode())
    assert {name: found[name] for name in INVALID_PACKET_METRICS} == INVALID_PACKET_METRICS


def test_packets_rejected_on_loopback_are_a_metric_with_the_gate(namespace: Namespace) -> None:
    """By family and protocol, TCP included since no loopback address accepts NodePorts."""
    namespace.run(["ip", "link", "set", "lo", "up"])
    with MonitoredNode(namespace, structs.replace(CONFIG, localhost_nodeports=True)) as node:
        web = service("web")
        web["spec"] |= {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080, "protocol": "UDP"}]}
        node.apply_and_sync(web)
        with namespace.entered(), socket.socket(type=socket.SOCK_DGRAM) as client:
            client.sendto(b"?", ("127.0.0.3", 30080))
        node.monitoring.kernel_counters.read()
        found = _parse_metrics(node.get(METRICS, "/metrics").body.decode())
        name = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"
        series = {key: value for key, value in node.scrape().items() if key.startswith(name)}
    assert {name: found[name] for name in LOCALHOST_REJECTION_METRICS} == LOCALHOST_REJECTION_METRICS
    assert series == {
        f'{name}{{ip_family="{family.value}",protocol="{protocol}"}}': (family, protocol) == (Family.IPV4, "UDP")
        for family in Family
        for protocol in ("TCP", "UDP", "SCTP")
    }


def test_nodeports_on_loopback_are_metrics_with_the_gate() -> None:
    """The failures of processes that have ended are counted, too."""
    forwarder = Forwarder()
    forwarder._receive(Report({"IPv4": 7}, {"IPv4": 2, "IPv6": 1}))
    forwarder._forget_report()
    forwarder._receive(Report({"IPv4": 3}, {"IPv4": 1}))
    metrics = Metrics()
    metrics.register(LocalhostNodePortsCollector(list(Family), forwarder))
    text = metrics.scrape().decode()
    found = _parse_metrics(text)
    assert {name: found[name] for name in LOCALHOST_NODEPORT_METRICS} == LOCALHOST_NODEPORT_METRICS
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("kubeproxy_nftables_localhost"))
    assert [float(value) for value in values.values()] == [3, 0, 3, 1]


def _service_series(node: MonitoredNode) -> dict[str, float]:
    return {key: value for key, value in node.scrape().items() if re.match(r"knft_service_\w+_total", key)}


def test_deliberately_absent_metrics_are_absent(node: MonitoredNode) -> None:
    _set_every_metric(node)
    names = {key.partition("{")[0] for key in node.scrape()}
    assert names.isdisjoint(ABSENT_METRICS)
    assert not [name for name in names if name.startswith("go_") or name.endswith("_created")]
    assert all(ABSENT_METRICS.values())


def test_every_metric_has_help_text(node: MonitoredNode) -> None:
    node.monitoring.kernel_counters.read()
    text = node.get(METRICS, "/metrics").body.decode()
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP") and len(line.split()) > 4}
    assert helped >= KUBE_PROXY_METRICS.keys() | KNFT_METRICS.keys()


def test_every_metric_is_changed_by_some_test() -> None:
    """knft_build_info is constant."""
    for name in MODULES:
        importlib.import_module(f"tests.serve.test_{name}_metrics")
    assert {*KUBE_PROXY_METRICS, *KNFT_METRICS, *SLI_METRICS} - {"knft_build_info"} == CHANGED_METRICS - PROCESS_METRICS


def test_documentation_lists_knft_metrics_and_absent_metrics() -> None:
    text = (Path(__file__).parents[2] / "docs/operations/metrics.md").read_text()
    assert [
        name
        for name in (*KNFT_METRICS, *SERVICE_COUNTER_METRICS, *KUBE_PROXY_METRICS, *SLI_METRICS)
        if f"`{name}`" not in text
    ] == []
    patterns = re.findall(r"`([a-z][a-z_*]*)`", text)
    assert [name for name in ABSENT_METRICS if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_labelled_series_appear_with_their_first_value(node: MonitoredNode) -> None:
    """kube-proxy does so too: an alert on a rate must not take a restart for a failure."""
    assert not [key for key in node.scrape() if "failures_total{" in key and not key.startswith("knft_health")]
