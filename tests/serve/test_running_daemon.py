"""Test of a running daemon with its servers: ``knft run`` without a source of objects."""

import threading
from collections.abc import Iterator

import pytest

from knft.config import Config
from knft.families import Family
from tests.serve.node import HEALTH, LOOPBACK, MonitoredNode, load_balancer_service
from tests.support.http_client import TIMEOUT_SECONDS, refuses_connections
from tests.support.kernel_harness import slices
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
PORT = 30100


@pytest.fixture
def node(namespace: Namespace) -> Iterator[MonitoredNode]:
    """A node whose daemon and servers run in threads."""
    node, stop = MonitoredNode(namespace, Config("node-1", nodeport_addresses=("all",))), threading.Event()

    def run() -> None:
        with namespace.entered():
            node.daemon.run(stop)

    daemon = threading.Thread(target=run)
    node.monitoring.start()
    daemon.start()
    yield node
    stop.set()
    daemon.join(TIMEOUT_SECONDS)
    node.monitoring.stop()
    assert not daemon.is_alive()
    assert refuses_connections(LOOPBACK, HEALTH)
    assert refuses_connections(LOOPBACK, PORT)
    for thread in threading.enumerate():
        if thread.name == "audit":  # The audit reads this test's namespace.
            thread.join(TIMEOUT_SECONDS)


def test_running_daemon_is_observed(node: MonitoredNode) -> None:
    """Changes are synced, failed syncs make the proxy unhealthy, and the ports are free after the end."""
    wait_until(lambda: not refuses_connections(LOOPBACK, HEALTH) and b'"IPv6":{' in node.get(HEALTH, "/livez").body)
    node.apply(load_balancer_service("web", PORT), *slices("web", [1], local=[1]))
    wait_until(lambda: not refuses_connections(LOOPBACK, PORT) and node.get(PORT).status == 200)
    for port in node.checked_tables.values():
        port.refused_commits = port.refused_reads = 10**9
    node.apply(*slices("web", [1, 2], local=[1, 2]))
    failures = 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"}'
    wait_until(lambda: node.scrape().get(failures, 0) > 2)
    assert node.get(HEALTH, "/livez").status == 200
    node.clock.pass_time(60)
    assert node.get(HEALTH, "/livez").status == 503
    assert node.get(PORT).status == 503
    for port in node.checked_tables.values():
        port.stop_failing()
    wait_until(lambda: node.get(HEALTH, "/livez").status == 200)
    wait_until(lambda: node.get(PORT).headers["x-load-balancing-endpoint-weight"] == "2")
    assert node.monitoring.health.families().keys() == set(Family)
