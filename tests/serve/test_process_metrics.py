"""Tests of metrics outside of syncs: health checks, conntrack, API server, foreign changes, the process."""

import itertools
import os
import signal
import socket
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from knft.app.object_feeds import ApiServerFeed
from knft.configuration.settings import ClientSettings, Settings
from knft.errors import ApiServerError, ApiStatusError
from knft.families import Family
from knft.kernel.notifications import ForeignChange, ForeignChangeMonitor
from knft.render.names import TABLE
from knft.sync.flow_cleaner import FlowCleaner
from knft.sync.observer import SyncObserver, overriding_methods
from knft.sync.older_version import CHANGES_BEFORE_LEAVING
from tests.serve.metric_values import changes_metrics, value
from tests.serve.node import HEALTH, METRICS, MonitoredNode
from tests.support.conntrack_entries import Entry, add_entries
from tests.support.fake_api.responses import respond_status
from tests.support.fake_api.server import FakeApiServer
from tests.support.kernel_harness import CONFIG, service, slices
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


@changes_metrics("kubeproxy_proxy_healthz_total", "kubeproxy_proxy_livez_total")
def test_probes_are_counted_by_status(node: MonitoredNode) -> None:
    for _ in range(2):
        node.get(HEALTH, "/healthz")
    node.eligible = False
    node.get(HEALTH, "/healthz")
    node.get(HEALTH, "/livez")
    node.monitoring.health.sync_queued(V4)
    node.clock.pass_time(60)
    for _ in range(3):
        node.get(HEALTH, "/livez")
    node.get(HEALTH, "/nothing")
    probes = [("healthz", "200"), ("healthz", "503"), ("livez", "200"), ("livez", "503")]
    assert [value(node, f"kubeproxy_proxy_{probe}_total", code=code) for probe, code in probes] == [2, 1, 1, 3]


@changes_metrics(
    "kubeproxy_conntrack_reconciler_sync_duration_seconds", "kubeproxy_conntrack_reconciler_deleted_entries_total"
)
def test_conntrack_reconciler_deletes_stale_entry(node: MonitoredNode) -> None:
    """The kernel has two entries; the endpoint of one is removed."""
    ticks = itertools.count()
    cleaner = FlowCleaner(
        CONFIG,
        frozenset,
        node.monitoring.metrics.observe_conntrack_reconcile,
        clock=lambda: next(ticks) * 0.1,
        grace=0,
    )
    node.daemon._observing[SyncObserver.sync_succeeded] += overriding_methods((cleaner,), SyncObserver.sync_succeeded)

    def dns(numbers: list[int]) -> list[dict[str, Any]]:
        ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
        return [service("dns", 8, ports=ports), *({**each, "ports": ports} for each in slices("dns", numbers))]

    node.apply_and_sync(*dns([1, 2]))
    for client, endpoint in (("192.0.2.50", "10.244.2.1"), ("192.0.2.51", "10.244.2.2")):
        add_entries([Entry("UDP", (client, 5353), ("10.96.0.8", 53), (endpoint, 53))])
    node.apply_and_sync(*dns([2]))
    assert cleaner.run_pass(V4) == 1
    assert value(node, "kubeproxy_conntrack_reconciler_deleted_entries_total", V4) == 1
    duration = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
    assert value(node, f"{duration}_count", V4) == 1
    assert value(node, f"{duration}_sum", V4) >= 0.1


def test_conntrack_reconciles_are_timed_and_deletions_counted(node: MonitoredNode) -> None:
    node.monitoring.metrics.observe_conntrack_reconcile(V4, 0.003, 5)
    node.monitoring.metrics.observe_conntrack_reconcile(V4, 0.0005, 0)
    duration = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
    assert [value(node, f"{duration}_bucket", V4, le=bound) for bound in ("0.001", "0.002", "0.004")] == [1, 1, 2]
    assert value(node, "kubeproxy_conntrack_reconciler_deleted_entries_total", V4) == 5


@changes_metrics("knft_drain_ended_connections_total")
def test_ended_connections_are_counted(node: MonitoredNode) -> None:
    node.monitoring.metrics.count_ended_connections(V4, 3)
    node.monitoring.metrics.count_ended_connections(V4, 2)
    assert value(node, "knft_drain_ended_connections_total", V4) == 5


@changes_metrics("rest_client_requests_total", "rest_client_request_duration_seconds")
def test_requests_to_an_api_server_are_counted(node: MonitoredNode) -> None:
    """One request succeeds, one is refused, and one gets no connection."""
    with FakeApiServer() as server:
        settings = Settings(CONFIG, client=ClientSettings(server=server.url, qps=0))
        feed = ApiServerFeed(settings)
        feed.register_metrics(node.monitoring.metrics)
        feed._client.request("GET", "/api/v1/services")
        server.respond_next("", respond_status(403, "no"))
        with pytest.raises(ApiStatusError):
            feed._client.request("GET", "/api/v1/services")
    with pytest.raises(ApiServerError):
        feed._client.request("POST", "/api/v1/services")
    host = server.url.removeprefix("http://")
    answers = {("200", "GET"): 1, ("403", "GET"): 1, ("<error>", "POST"): 1}
    for (code, method), count in answers.items():
        assert value(node, "rest_client_requests_total", code=code, method=method, host=host) == count
    assert value(node, "rest_client_request_duration_seconds_count", verb="GET", host=host) == 2
    assert value(node, "rest_client_request_duration_seconds_count", verb="POST", host=host) == 1


def test_api_requests_are_counted_by_code_and_timed(node: MonitoredNode) -> None:
    for code, seconds in (("200", 0.01), ("200", 3.0), ("<error>", 0.001)):
        node.monitoring.metrics.observe_api_request(code, "GET", "10.96.0.1:443", seconds)
    labels: dict[str, Any] = {"method": "GET", "host": "10.96.0.1:443"}
    assert [value(node, "rest_client_requests_total", code=code, **labels) for code in ("200", "<error>")] == [2, 1]
    bucket: dict[str, Any] = {"verb": "GET", "host": "10.96.0.1:443"}
    found = [value(node, "rest_client_request_duration_seconds_bucket", **bucket, le=le) for le in ("0.005", "1", "60")]
    assert found == [1, 2, 3]


@changes_metrics("knft_foreign_changes_total")
def test_foreign_changes_are_counted(node: MonitoredNode) -> None:
    node.apply_and_sync()
    stop = threading.Event()
    with ForeignChangeMonitor(TABLE) as others:
        thread = threading.Thread(target=node.daemon.foreign_changes.run, args=[others, stop])
        thread.start()
        node.namespace.run(["nft", "add", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.99 }"])
        wait_until(lambda: value(node, "knft_foreign_changes_total", V4) == 1)
        stop.set()
        others.stop()
        thread.join()
    assert value(node, "knft_foreign_changes_total", V6) == 0


@changes_metrics("knft_check_delay_seconds")
def test_repeated_foreign_changes_are_checked_with_a_delay(node: MonitoredNode) -> None:
    node.apply_and_sync()
    changes = [(ForeignChange(Family.IPV4, process=f"nft (pid {number})"),) for number in range(6)]
    stop = threading.Event()

    class Repeating:
        """Reports a change after each check."""

        def receive(self, _seconds: float) -> tuple[ForeignChange, ...]:
            node.daemon.sync()
            if len(changes) == 1:
                stop.set()
            return changes.pop()

    assert value(node, "knft_check_delay_seconds", V4) == 0
    node.daemon.foreign_changes.run(Repeating(), stop)  # type: ignore[arg-type]
    assert value(node, "knft_check_delay_seconds", V4) == 1
    assert value(node, "knft_check_delay_seconds", V6) == 0


@changes_metrics("knft_table_left_to_older_version")
def test_table_left_to_an_older_version(node: MonitoredNode) -> None:
    node.apply_and_sync()
    change = ForeignChange(Family.IPV6, process="knft (pid 7)")
    for _ in range(CHANGES_BEFORE_LEAVING):
        assert [value(node, "knft_table_left_to_older_version", family) for family in Family] == [0, 0]
        node.monitoring.metrics.syncs.repair_failed(Family.IPV6.value).set(1)
        node.daemon.foreign_changes.record(change)
        assert node.daemon.sync()
    assert value(node, "knft_repair_failed", V6) == 0
    assert [value(node, "knft_table_left_to_older_version", family) for family in Family] == [0, 1]


@changes_metrics("knft_audit_differences_total")
def test_audit_differences_are_counted(node: MonitoredNode) -> None:
    node.apply_and_sync(service("web"))
    node.namespace.run(["nft", "add", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.98, 10.96.0.99 }"])
    assert node.daemon.audit()
    assert [value(node, "knft_audit_differences_total", family) for family in Family] == [2, 0]


@changes_metrics("knft_libnftables_starts_total")
def test_starts_of_the_libnftables_process_are_counted(node: MonitoredNode) -> None:
    from tests.support.nft_process import library_in

    node.apply_and_sync()
    before = value(node, "knft_libnftables_starts_total")
    library = library_in(node.namespace)._process
    assert library.pid is not None
    os.kill(library.pid, signal.SIGKILL)
    with node.namespace.entered():
        assert library.replace_if_died_within(20)
    assert value(node, "knft_libnftables_starts_total") == before + 1


@changes_metrics("knft_events_dropped_total")
def test_dropped_events_are_counted(node: MonitoredNode) -> None:
    node.monitoring.metrics.count_dropped_event()
    assert value(node, "knft_events_dropped_total") == 1


@changes_metrics("knft_log_lines_dropped_total")
def test_dropped_log_lines_are_counted(node: MonitoredNode) -> None:
    node.dropped_log_lines = 2
    assert value(node, "knft_log_lines_dropped_total") == 2


@changes_metrics("kubernetes_healthcheck", "kubernetes_healthchecks_total")
def test_health_checks_are_service_level_indicators(node: MonitoredNode) -> None:
    """They are on the page /metrics/slis."""
    for _ in range(2):
        node.get(METRICS, "/healthz")
    found = node.scrape("/metrics/slis")
    assert found == {
        'kubernetes_healthcheck{name="ping",type="healthz"}': 1,
        'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"}': 2,
    }


@changes_metrics("process_cpu_seconds_total")
def test_open_file_descriptors_are_counted(node: MonitoredNode) -> None:
    before = node.scrape()
    with socket.socket(), socket.socket():
        assert node.scrape()["process_open_fds"] == before["process_open_fds"] + 2
    wait_until(lambda: node.scrape()["process_cpu_seconds_total"] > before["process_cpu_seconds_total"])


@changes_metrics(
    "knft_conntrack_entries",
    "knft_conntrack_max_entries",
    "knft_conntrack_insert_failures_total",
    "knft_conntrack_drops_total",
    "knft_conntrack_early_drops_total",
)
def test_conntrack_entries_and_failures_are_counted(node: MonitoredNode) -> None:
    """Connections that get the source port of another one cannot be tracked, so the kernel drops their packets."""
    node.monitoring.kernel_counters.read()
    names = ("entries", "max_entries", "insert_failures_total", "drops_total", "early_drops_total")
    before = {name: value(node, name) for name in (f"knft_conntrack_{each}" for each in names)}
    node.namespace.run(
        ["nft", "-f", "-"],
        stdin="table ip clash {\nchain postrouting {\ntype nat hook postrouting priority 100\n"
        "tcp dport 80 snat to 127.0.0.9:1000\n}\n}",
    )
    with ExitStack() as opened:
        opened.enter_context(socket.create_server(("127.0.0.1", 80)))
        opened.enter_context(socket.create_connection(("127.0.0.1", 80)))
        for _ in range(2):
            client = opened.enter_context(socket.socket())
            client.settimeout(0)
            client.connect_ex(("127.0.0.1", 80))
        # A scrape reads nothing from the kernel.
        scraped = {name: value(node, name) for name in before}
        node.monitoring.kernel_counters.read()
    assert scraped == before
    assert value(node, "knft_conntrack_entries") >= 1
    assert value(node, "knft_conntrack_max_entries") > 1000
    assert value(node, "knft_conntrack_insert_failures_total") >= 2
    assert value(node, "knft_conntrack_drops_total") >= 2
    # Only a full table has early drops, and its size is that of the host.
    assert value(node, "knft_conntrack_early_drops_total") == 0
