"""The cluster's servers fail, and knft goes on: rules stay, nothing is lost, and in the end they are what they must be.

All the while endpoints change and connections are made, in both families and protocols.
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

AWAY = 3.0
"""Seconds that a server is away, or does nothing."""

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def stage(
    lab: Lab, cluster: Cluster, account: ServiceAccount, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultStage]:
    add_client_addresses(lab)
    follower = KnftProcess(cluster, account, tmp_path_factory.mktemp("faults"))
    try:
        yield FaultStage(lab, cluster, follower)
    finally:
        follower.close()
        knft(lab.host("node").namespace, "cleanup")


def _restarted(server: ServerProcess) -> None:
    server.stop()
    time.sleep(AWAY)
    server.start()


def _killed(server: ServerProcess) -> None:
    server.kill()
    time.sleep(AWAY)
    server.start()


def _paused(server: ServerProcess) -> None:
    server.pause()
    time.sleep(AWAY)
    server.resume()


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
@pytest.mark.parametrize("fail", [_restarted, _killed, _paused])
def test_a_server_fails(stage: FaultStage, tmp_path: Path, fail: Callable[[ServerProcess], None], name: str) -> None:
    """And comes back."""
    cluster = stage.cluster
    server = cluster.etcd_process if name == "etcd" else cluster.apiserver

    def disturb() -> None:
        fail(server)
        cluster.wait_ready()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_both_are_killed(stage: FaultStage, tmp_path: Path) -> None:
    """And come back, the API server first."""
    cluster = stage.cluster

    def disturb() -> None:
        for server in (cluster.etcd_process, cluster.apiserver):
            server.kill()
        cluster.apiserver.start()
        time.sleep(AWAY)
        cluster.etcd_process.start()
        wait_until(cluster.etcd_store.is_healthy, "etcd does not come back")
        if cluster.apiserver.process.poll() is not None:  # It gives up after a while, and is started again then.
            cluster.apiserver.wait()
            cluster.apiserver.start()
        cluster.wait_ready()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_history_is_gone(stage: FaultStage, tmp_path: Path) -> None:
    """While knft heard nothing: it cannot go on where it was, lists again, and forgets what is no longer there."""
    cluster, log = stage.cluster, stage.follower.log
    _, forgotten = Scenario("", [service("forgotten", 90, *tcp_and_udp("http", 80))], ()).manifests()

    def disturb() -> None:
        stage.applier.add(forgotten)
        stage.wait_programmed()
        refusals = log.read_text().count(" 410")
        stage.follower.pause()
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()
        # Now, as what the killed one had sent is waiting to be read.
        cluster.api.delete(forgotten)
        time.sleep(AWAY)
        cluster.etcd_store.compact()
        stage.follower.resume()
        wait_until(
            lambda: log.read_text().count(" 410") > refusals, "nobody says that it is too late", stage.follower.check
        )

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_the_token_is_another(stage: FaultStage, account: ServiceAccount, tmp_path: Path) -> None:
    """The old one has expired when the next request is due."""
    cluster, volume = stage.cluster, stage.follower.volume

    def disturb() -> None:
        old = account.short_lived_token(3)
        volume.replace(old)
        # Whoever is let in is let in for a while; a new API server asks everybody.
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()
        wait_until(lambda: not account.is_accepted(old), "the token does not expire")
        volume.replace(account.token())
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.wait_ready()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_the_node_is_deleted(stage: FaultStage, tmp_path: Path) -> None:
    """The process ends with status 1; another one, on the node that was made again, is right."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        stage.cluster.api.delete(node)
        assert stage.follower.wait() == 1, stage.follower.tail()
        stage.applier.add(node)
        stage.follower.start()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_the_node_loses_its_addresses(stage: FaultStage, tmp_path: Path) -> None:
    """For a while: the rules keep those that it had."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        held = stage.cluster.api.get(node)
        stage.cluster.api.replace({**held, "status": {**held["status"], "addresses": []}}, "/status")
        wait_until(lambda: "has lost its addresses" in stage.follower.log.read_text(), "nobody notices")
        time.sleep(AWAY)
        stage.applier.add(node)

    _expect_nothing_wrong(stage, tmp_path, disturb)


def _expect_nothing_wrong(stage: FaultStage, folder: Path, disturb: Callable[[], None]) -> None:
    played = stage.run_fault(folder, 1, disturb)
    assert played.failed_calls == []
    assert played.untranslated_packets == 0
    assert played.table_differences == []
    # There was something to see.
    assert played.answered_calls > 500
