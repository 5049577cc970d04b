"""The cluster's servers fail: rules stay, no change is lost, and in the end the tables are as expected.

Meanwhile endpoints change and connections are made, in both families and protocols.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fault_stage import FaultStage
from tests.cluster.knft_process import KnftProcess
from tests.cluster.server_process import ServerProcess
from tests.cluster.service_account import ServiceAccount
from tests.packets.many_clients import add_client_addresses
from tests.packets.programmed import service, tcp_and_udp
from tests.support.knft_command import knft
from tests.support.lab.topology import Lab
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

DOWN_SECONDS = 3.0
"""For how many seconds a server is down or paused."""

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def stage(
    lab: Lab, cluster: Cluster, service_account: ServiceAccount, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultStage]:
    add_client_addresses(lab)
    daemon = KnftProcess(cluster, service_account, tmp_path_factory.mktemp("faults"))
    try:
        yield FaultStage(lab, cluster, daemon)
    finally:
        daemon.close()
        knft(lab.host("node").namespace, "cleanup")


def _restarted(server: ServerProcess) -> None:
    server.stop()
    time.sleep(DOWN_SECONDS)
    server.start()


def _killed(server: ServerProcess) -> None:
    server.kill()
    time.sleep(DOWN_SECONDS)
    server.start()


def _paused(server: ServerProcess) -> None:
    server.pause()
    time.sleep(DOWN_SECONDS)
    server.resume()


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
@pytest.mark.parametrize("fail", [_restarted, _killed, _paused])
def test_one_server_fails(stage: FaultStage, tmp_path: Path, fail: Callable[[ServerProcess], None], name: str) -> None:
    """The server comes back afterwards."""
    cluster = stage.cluster
    server = cluster.etcd_process if name == "etcd" else cluster.apiserver

    def disturb() -> None:
        fail(server)
        cluster.wait_ready()

    _expect_no_faults(stage, tmp_path, disturb)


def test_both_servers_are_killed(stage: FaultStage, tmp_path: Path) -> None:
    """They come back, the API server first."""
    cluster = stage.cluster

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

    _expect_no_faults(stage, tmp_path, disturb)


def test_etcd_is_compacted(stage: FaultStage, tmp_path: Path) -> None:
    """knft is paused meanwhile: its resource version has expired, so it lists again and removes deleted objects."""
    cluster, log = stage.cluster, stage.daemon.log
    _, deleted_service = Scenario("", [service("deleted", 90, *tcp_and_udp("http", 80))], ()).manifests()

    def disturb() -> None:
        stage.applier.add(deleted_service)
        stage.wait_programmed()
        refusals = log.read_text().count(" 410")
        stage.daemon.pause()
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()
        # Only now: knft may still read what the killed server had sent.
        cluster.api.delete(deleted_service)
        time.sleep(DOWN_SECONDS)
        cluster.etcd_store.compact()
        stage.daemon.resume()
        wait_until(lambda: log.read_text().count(" 410") > refusals, "knft does not log the expiry", stage.daemon.check)

    _expect_no_faults(stage, tmp_path, disturb)


def test_token_is_rotated(stage: FaultStage, service_account: ServiceAccount, tmp_path: Path) -> None:
    """The old token has expired before the next request."""
    cluster, volume = stage.cluster, stage.daemon.volume

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

    _expect_no_faults(stage, tmp_path, disturb)


def test_node_is_deleted(stage: FaultStage, tmp_path: Path) -> None:
    """The process exits with status 1; another one starts with the node that was created again."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        stage.cluster.api.delete(node)
        assert stage.daemon.wait() == 1, stage.daemon.tail()
        stage.applier.add(node)
        stage.daemon.start()

    _expect_no_faults(stage, tmp_path, disturb)


def test_node_loses_its_addresses(stage: FaultStage, tmp_path: Path) -> None:
    """For a while: its previous addresses stay in use."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        current = stage.cluster.api.get(node)
        stage.cluster.api.replace({**current, "status": {**current["status"], "addresses": []}}, "/status")
        wait_until(lambda: "has lost its addresses" in stage.daemon.log.read_text(), "knft does not log it")
        time.sleep(DOWN_SECONDS)
        stage.applier.add(node)

    _expect_no_faults(stage, tmp_path, disturb)


def _expect_no_faults(stage: FaultStage, folder: Path, disturb: Callable[[], None]) -> None:
    result = stage.run_fault(folder, 1, disturb)
    assert result.failed_calls == []
    assert result.untranslated_packets == 0
    assert result.table_differences == []
    # The check is not empty.
    assert result.answered_calls > 500
