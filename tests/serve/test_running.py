"""A daemon that runs by itself, with its servers: what ``knft run`` is but for its source of objects."""

import threading
from collections.abc import Iterator

import pytest

from knft.config import Config
from knft.model.names import Family
from knft.runner.clock import MonotonicClock
from tests.kernel.harness import slices
from tests.serve.client import HANG, refuses
from tests.serve.node import HEALTH, LOOPBACK, ServedNode, eventually, health_checked
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
PORT = 30100


@pytest.fixture
def node(namespace: Namespace) -> Iterator[ServedNode]:
    """Its loop runs, and its servers."""
    node, stop = ServedNode(namespace, Config("node-1", nodeport_addresses=("all",))), threading.Event()

    def run() -> None:
        with namespace.entered():
            node.daemon.run(0, 0.02, MonotonicClock(), stop)

    daemon = threading.Thread(target=run)
    node.serving.start()
    daemon.start()
    yield node
    stop.set()
    daemon.join(HANG)
    node.serving.stop()
    assert not daemon.is_alive()
    assert refuses(LOOPBACK, HEALTH)
    assert refuses(LOOPBACK, PORT)
    for thread in threading.enumerate():
        if thread.name == "audit":  # It is about this test's namespace.
            thread.join(HANG)


def test_a_daemon_is_observed_while_it_runs(node: ServedNode) -> None:
    """Its loop begins, changes are queued and synced, a failure makes it late, and at its end the ports are free."""
    eventually(lambda: not refuses(LOOPBACK, HEALTH) and b'"IPv6":{' in node.get(HEALTH, "/livez").body)
    node.apply(health_checked("web", PORT), *slices("web", [1], local=[1]))
    eventually(lambda: not refuses(LOOPBACK, PORT) and node.get(PORT).status == 200)
    for port in node.ports.values():
        port.refuse = port.refuse_reads = 10**9
    node.apply(*slices("web", [1, 2], local=[1, 2]))
    failures = 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"}'
    eventually(lambda: node.scrape().get(failures, 0) > 2)
    assert node.get(HEALTH, "/livez").status == 200
    node.clock.pass_time(60)
    assert node.get(HEALTH, "/livez").status == 503
    assert node.get(PORT).status == 503
    for port in node.ports.values():
        port.heal()
    eventually(lambda: node.get(HEALTH, "/livez").status == 200)
    eventually(lambda: node.get(PORT).headers["x-load-balancing-endpoint-weight"] == "2")
    assert node.serving.health.families().keys() == set(Family)
