"""The cluster's servers fail: rules stay, no change is lost, and in the end the tables are as expected.

Meanwhile endpoints change and connections are made, in both families and protocols.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.fault_test_node import FaultTestNode
from tests.cluster.server_process import ServerProcess
from tests.cluster.service_account import ServiceAccount
from tests.support.knft_command import knft
from tests.support.lab.topology import Lab
from tests.support.packets.many_clients import add_client_addresses
from tests.support.packets.programmed import service, tcp_and_udp
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

DOWN_SECONDS = 3.0
"""Seconds for which a server is down or paused."""

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def fault_node(
    lab: Lab, cluster: Cluster, service_account: ServiceAccount, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultTestNode]:
    add_client_addresses(lab)
    daemon = ClusterKnft(cluster, service_account, tmp_path_factory.mktemp("faults"))
    try:
        yield FaultTestNode(lab, cluster, daemon)
    finally:
        daemon.close()
        knft(lab.host("node").namespace, "cleanup")


def _restart(server: ServerProcess) -> None:
    server.stop()
    time.sleep(DOWN_SECONDS)
    server.start()


def _kill_and_start(server: ServerProcess) -> None:
    server.kill()
    time.sleep(DOWN_SECONDS)
    server.start()


def _pause_and_resume(server: ServerProcess) -> None:
    server.pause()
    time.sleep(DOWN_SECONDS)
    server.resume()


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
@pytest.mark.parametrize("fail", [_restart, _kill_and_start, _pause_and_resume])
def test_no_connection_fails_while_a_server_is_down(
    fault_node: FaultTestNode, tmp_path: Path, fail: Callable[[ServerProcess], None], name: str
) -> None:
    """The server is restarted, killed or paused, and comes back."""
    cluster = fault_node.cluster
    server = cluster.etcd_process if name == "etcd" else cluster.apiserver

    def disturb() -> None:
        fail(server)
        cluster.wait_ready()

    _expect_no_faults(fault_node, tmp_path, disturb)


def test_no_connection_fails_while_both_servers_are_down(fault_node: FaultTestNode, tmp_path: Path) -> None:
    """They come back, the API server first."""
    cluster = fault_node.cluster

    def disturb() -> None:
        for server in (cluster.etcd_process, cluster.apiserver):
            server.kill()
        cluster.apiserver.start()
        time.sleep(DOWN_SECONDS)
        cluster.etcd_process.start()
        wait_until(cluster.etcd_store.is_healthy, "etcd does not come back")
        if cluster.apiserver.process.poll() is not None:  # It exits without etcd after a while.
            cluster.apiserver.wait()
            cluster.apiserver.start()
        cluster.wait_ready()

    _expect_no_faults(fault_node, tmp_path, disturb)


def test_expired_resource_version_lists_again_and_no_connection_fails(
    fault_node: FaultTestNode, tmp_path: Path
) -> None:
    """knft is paused meanwhile: its resource version has expired, so it lists again and removes deleted objects."""
    cluster, log = fault_node.cluster, fault_node.daemon.log
    _, deleted_service = Scenario("", [service("deleted", 90, *tcp_and_udp("http", 80))], ()).manifests()

    def disturb() -> None:
        fault_node.applier.add(deleted_service)
        fault_node.wait_until_programmed()
        refusals = log.read_text().count(" 410")
        fault_node.daemon.pause()
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()
        # Delete it after the restart: a paused knft may still read what the killed server has sent.
        cluster.api.delete(deleted_service)
        time.sleep(DOWN_SECONDS)
        cluster.etcd_store.compact()
        fault_node.daemon.resume()
        wait_until(
            lambda: log.read_text().count(" 410") > refusals, "knft does not log the expiry", fault_node.daemon.check
        )

    _expect_no_faults(fault_node, tmp_path, disturb)


def test_no_connection_fails_when_the_token_is_replaced(
    fault_node: FaultTestNode, service_account: ServiceAccount, tmp_path: Path
) -> None:
    """The old token has expired before the next request."""
    cluster, volume = fault_node.cluster, fault_node.daemon.volume

    def disturb() -> None:
        old = service_account.short_lived_token(3)
        volume.replace(old)
        # The API server caches accepted tokens for a while; a new one does not know them.
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()
        wait_until(lambda: not service_account.is_accepted(old), "the token does not expire")
        volume.replace(service_account.token())
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()

    _expect_no_faults(fault_node, tmp_path, disturb)


def test_no_connection_fails_when_the_node_is_deleted_and_created(fault_node: FaultTestNode, tmp_path: Path) -> None:
    """The process exits with status 1; another one starts with the node that was created again."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        fault_node.cluster.api.delete(node)
        assert fault_node.daemon.wait() == 1, fault_node.daemon.tail()
        fault_node.applier.add(node)
        fault_node.daemon.start()

    _expect_no_faults(fault_node, tmp_path, disturb)


def test_no_connection_fails_when_the_node_loses_its_addresses(fault_node: FaultTestNode, tmp_path: Path) -> None:
    """The loss is temporary, and the previous addresses stay in use."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        current = fault_node.cluster.api.get(node)
        fault_node.cluster.api.replace({**current, "status": {**current["status"], "addresses": []}}, "/status")
        wait_until(lambda: "has lost its addresses" in fault_node.daemon.log.read_text(), "knft does not log it")
        time.sleep(DOWN_SECONDS)
        fault_node.applier.add(node)

    _expect_no_faults(fault_node, tmp_path, disturb)


def _expect_no_faults(fault_node: FaultTestNode, folder: Path, disturb: Callable[[], None]) -> None:
    result = fault_node.run_fault(folder, 1, disturb)
    assert result.failed_calls == []
    assert result.untranslated_packets == 0
    assert result.table_differences == []
    # The clients made enough connections to find faults.
    assert result.answered_calls > 500
