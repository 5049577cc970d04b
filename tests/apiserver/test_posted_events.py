"""The events that knft posts (docs/behaviour/configuration.md#events), from their causes to the API server."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from knft.app.object_feeds import ApiServerFeed
from knft.app.shutdown import Shutdown
from knft.config import Config
from knft.configuration.settings import ClientSettings, Settings
from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.serve.monitoring import Monitoring
from knft.serve.proxy_health import ProxyHealth
from knft.serve.service_health import HealthCheck, HealthCheckChanges
from knft.serve.timestamp import now
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.apiserver.running_source import wait_until
from tests.support.fake_api.cluster import node, service
from tests.support.fake_api.server import FakeApiServer
from tests.support.lab.namespace import Namespace

WEB = NamespacedName("shop", "web")
UNUSED_ADDRESS = "192.0.2.1"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """A fake server in a namespace that has no address but loopback."""
    namespace = Namespace.create("events")
    with namespace.entered():
        namespace.run(["ip", "link", "set", "lo", "up"])
        with FakeApiServer() as made:
            yield made
    namespace.close()


class EventTest:
    """A feed and the servers of a process, and the events that the API server received."""

    def __init__(self, server: FakeApiServer, **settings: str) -> None:
        self._server = server
        found = Settings(Config("node-1"), client=ClientSettings(server=server.url, qps=0), **settings)  # type: ignore[arg-type]
        self.feed = ApiServerFeed(found)
        self.serving = Monitoring(
            found,
            ProxyHealth(found.config.sync_period, now),
            node_eligible=self.feed.is_eligible,
            on_event=self.feed.record_event,
            on_fatal_listen_error=lambda _: None,
        )
        self.ending = Shutdown(threading.Event(), 0, exit_process=lambda _: None)

    def start(self) -> None:
        self.feed.start(_Daemon(), self.ending)  # type: ignore[arg-type] # nothing is synced here

    def stop(self) -> None:
        self.serving.stop()
        self.ending.stop.set()

    def events(self, count: int) -> list[dict[str, Any]]:
        def posted() -> list[dict[str, Any]]:
            return [json.loads(request.body) for request in self._server.requests if request.kind == "post"]

        wait_until(lambda: len(posted()) >= count, f"{count} events")
        return posted()


class _Daemon:
    """Accepts objects, and does nothing with them."""

    def handle(self, changes: Any) -> None:
        list(changes)


def _report(family: Family, left_out: dict[ServicePortName, str]) -> SyncReport:
    return SyncReport(
        family=family,
        is_full=True,
        service_ports=1,
        elements_added=0,
        elements_removed=0,
        chains_written=0,
        seconds=0.0,
        kernel_seconds=0.0,
        changed_service_ports=frozenset(),
        losing_claim_count=0,
        newly_losing_claims=(),
        ended_losing_claims=(),
        quarantined=left_out,
        too_large={},
        orphan_error="",
        refused_removals=0,
        next_sync_within=None,
        trigger_times={},
        conntrack_cleanup_required=False,
    )


def test_each_documented_event(server: FakeApiServer) -> None:
    """Object, type, reason and action of each event."""
    server.cluster.put("nodes", node("node-1", "192.0.2.11"))
    test = EventTest(
        server, healthz_bind_address=f"{UNUSED_ADDRESS}:10256", metrics_bind_address=f"{UNUSED_ADDRESS}:10249"
    )
    test.start()
    try:
        state = ServiceState(Family.IPV4, "node-1", datetime.now(UTC))
        for observer in test.serving.observers_with():
            observer.loop_started(Family.IPV4)
            observer.sync_succeeded(_report(Family.IPV4, {ServicePortName(*WEB, "http", "TCP"): "too large"}), state)
        test.serving.start()
        servers = test.serving.service_health.servers[Family.IPV4]
        test.serving._thread.call_soon(
            lambda: servers.apply(HealthCheckChanges({WEB: HealthCheck(30100, 1)}, frozenset({UNUSED_ADDRESS})))
        )
        found = test.events(5)
    finally:
        test.stop()
    assert sorted((each["regarding"]["kind"], each["type"], each["reason"], each["action"]) for each in found) == [
        ("Node", "Normal", "Starting", "StartKubeProxy"),
        ("Node", "Warning", "FailedToStartMetricServer", "StartKubeProxy"),
        ("Node", "Warning", "FailedToStartProxierHealthcheck", "StartKubeProxy"),
        ("Service", "Warning", "FailedToProgramService", "Sync"),
        ("Service", "Warning", "FailedToStartServiceHealthcheck", "Listen"),
    ]
    by_reason = {each["reason"]: each for each in found}
    first, last = by_reason["Starting"], by_reason["FailedToStartServiceHealthcheck"]
    assert (first["apiVersion"], first["kind"]) == ("events.k8s.io/v1", "Event")
    assert (first["reportingController"], first["reportingInstance"]) == ("knft", "node-1")
    assert first["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    assert (first["note"], first["metadata"]["namespace"]) == ("", "default")
    assert first["metadata"]["name"].startswith("node-1.")
    assert first["eventTime"].endswith("Z")
    assert last["regarding"] == {
        "apiVersion": "v1", "kind": "Service", "name": "web", "namespace": "shop", "uid": "shop/web",
    }  # fmt: skip
    assert last["metadata"]["namespace"] == "shop"
    assert "node-1 cannot serve health checks of Service shop/web at 192.0.2.1 port 30100" in last["note"]
    paths = {request.path for request in server.requests if request.kind == "post"}
    assert paths == {f"/apis/events.k8s.io/v1/namespaces/{name}/events" for name in ("default", "shop")}


def test_invalid_service_gets_one_event(server: FakeApiServer) -> None:
    """It is skipped before any sync. Problems of other objects are only logged."""
    server.cluster.put("nodes", node("node-1", "192.0.2.11"))
    twice = [{"name": "http", "port": 80}, {"name": "http", "port": 81}]
    server.cluster.put("services", service("early", 7, ports=twice))
    server.cluster.put("endpointslices", {**service("none"), "addressType": 5})
    test = EventTest(server)
    test.start()
    try:
        test.events(1)
        server.cluster.put("services", service("early", 8, ports=twice))
        server.cluster.put("services", service("odd", 10, externalIPs=["x"]))
        server.cluster.put("services", service("late", 9, ports=twice))
        found = test.events(2)
    finally:
        test.stop()
    text = "spec.ports[1].name: 'http' is already the name of spec.ports[0]; skipped"
    assert [(each["type"], each["reason"], each["action"], each["note"]) for each in found] == [
        ("Warning", "FailedToProgramService", "Sync", f"on node node-1: Service default/{name}: {text}")
        for name in ("early", "late")
    ]
    assert found[0]["regarding"]["uid"] == "default/early"
