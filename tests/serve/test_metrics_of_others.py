"""The metrics of what goes on beside syncs: probes, conntrack, the API server, others' changes, the process itself."""

import itertools
import os
import signal
import socket
import threading
from typing import Any

import pytest

from knft.cli.feeds import ClusterFeed
from knft.configuration.settings import ClientSettings, Settings
from knft.errors import ClusterError, RefusedError
from knft.kernel.notifications import ForeignChanges
from knft.model.names import Family
from knft.render.names import TABLE
from knft.sync.conntrack import FlowCleaner
from tests.apiserver.answers import refuse
from tests.apiserver.server import ApiServer
from tests.conntrack.entries import Entry, make
from tests.kernel.harness import CONFIG, service, slices
from tests.serve.moving import moves, value
from tests.serve.node import HEALTH, METRICS, ServedNode, eventually

pytestmark = pytest.mark.kernel
V4, V6 = Family.IPV4, Family.IPV6


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


@moves("kubeproxy_conntrack_reconciler_sync_duration_seconds", "kubeproxy_conntrack_reconciler_deleted_entries_total")
def test_flows_that_are_forgotten(node: ServedNode) -> None:
    """Of two that the kernel has, the one whose endpoint is gone."""
    moments = itertools.count()
    cleaner = FlowCleaner(
        CONFIG, frozenset, node.serving.metrics.conntrack_reconciled, clock=lambda: next(moments) * 0.1, grace=0
    )
    node.daemon._observers = (*node.daemon._observers, cleaner)

    def dns(numbers: list[int]) -> list[dict[str, Any]]:
        ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
        return [service("dns", 8, ports=ports), *({**each, "ports": ports} for each in slices("dns", numbers))]

    node.synced(*dns([1, 2]))
    for client, endpoint in (("192.0.2.50", "10.244.2.1"), ("192.0.2.51", "10.244.2.2")):
        make([Entry("UDP", (client, 5353), ("10.96.0.8", 53), (endpoint, 53))])
    node.synced(*dns([2]))
    assert cleaner.reconcile(V4) == 1
    assert value(node, "kubeproxy_conntrack_reconciler_deleted_entries_total", V4) == 1
    duration = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
    assert value(node, f"{duration}_count", V4) == 1
    assert value(node, f"{duration}_sum", V4) >= 0.1


def test_what_the_conntrack_reconciler_tells(node: ServedNode) -> None:
    node.serving.metrics.conntrack_reconciled(V4, 0.003, 5)
    node.serving.metrics.conntrack_reconciled(V4, 0.0005, 0)
    duration = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
    assert [value(node, f"{duration}_bucket", V4, le=bound) for bound in ("0.001", "0.002", "0.004")] == [1, 1, 2]
    assert value(node, "kubeproxy_conntrack_reconciler_deleted_entries_total", V4) == 5


@moves("rest_client_requests_total", "rest_client_request_duration_seconds")
def test_requests_to_an_api_server(node: ServedNode) -> None:
    """One is answered, one refused, and one finds nobody there."""
    with ApiServer() as server:
        settings = Settings(CONFIG, client=ClientSettings(server=server.url, qps=0))
        feed = ClusterFeed(settings)
        feed.count_requests(node.serving.metrics)
        feed._connection.request("GET", "/api/v1/services")
        server.demand("", refuse(403, "no"))
        with pytest.raises(RefusedError):
            feed._connection.request("GET", "/api/v1/services")
    with pytest.raises(ClusterError):
        feed._connection.request("POST", "/api/v1/services")
    host = server.url.removeprefix("http://")
    answers = {("200", "GET"): 1, ("403", "GET"): 1, ("<error>", "POST"): 1}
    for (code, method), count in answers.items():
        assert value(node, "rest_client_requests_total", code=code, method=method, host=host) == count
    assert value(node, "rest_client_request_duration_seconds_count", verb="GET", host=host) == 2
    assert value(node, "rest_client_request_duration_seconds_count", verb="POST", host=host) == 1


def test_what_the_client_of_the_api_server_tells(node: ServedNode) -> None:
    for code, seconds in (("200", 0.01), ("200", 3.0), ("<error>", 0.001)):
        node.serving.metrics.api_request(code, "GET", "10.96.0.1:443", seconds)
    labels: dict[str, Any] = {"method": "GET", "host": "10.96.0.1:443"}
    assert [value(node, "rest_client_requests_total", code=code, **labels) for code in ("200", "<error>")] == [2, 1]
    bucket: dict[str, Any] = {"verb": "GET", "host": "10.96.0.1:443"}
    found = [value(node, "rest_client_request_duration_seconds_bucket", **bucket, le=le) for le in ("0.005", "1", "60")]
    assert found == [1, 2, 3]


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


@moves("knft_libnftables_starts_total")
def test_processes_of_the_library(node: ServedNode) -> None:
    from tests.kernel.nft_process import library_in

    node.synced()
    before = value(node, "knft_libnftables_starts_total")
    library = library_in(node.namespace)._process
    assert library.pid is not None
    os.kill(library.pid, signal.SIGKILL)
    with node.namespace.entered():
        assert library.dies_within(20)
    assert value(node, "knft_libnftables_starts_total") == before + 1


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
