"""The cluster's servers fail, and knft goes on: rules stay, nothing is lost, and in the end they are what they must be.

All the while endpoints change and connections are made, in both families and protocols.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.account import Account
from tests.cluster.cluster import Cluster
from tests.cluster.follower import Follower
from tests.cluster.played import Stage
from tests.cluster.server import Server
from tests.packets.crowd import gather
from tests.packets.node import knft
from tests.packets.programmed import both_protocols, service
from tests.packets.running import until
from tests.packets.scenario import Scenario
from tests.support.lab.topology import Lab

AWAY = 3.0
"""Seconds that a server is away, or does nothing."""

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def stage(lab: Lab, cluster: Cluster, account: Account, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    gather(lab)
    follower = Follower(cluster, account, tmp_path_factory.mktemp("faults"))
    try:
        yield Stage(lab, cluster, follower)
    finally:
        follower.close()
        knft(lab.host("node").namespace, "cleanup")


def _restarted(server: Server) -> None:
    server.stop()
    time.sleep(AWAY)
    server.start()


def _killed(server: Server) -> None:
    server.kill()
    time.sleep(AWAY)
    server.start()


def _paused(server: Server) -> None:
    server.pause()
    time.sleep(AWAY)
    server.resume()


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
@pytest.mark.parametrize("fail", [_restarted, _killed, _paused])
def test_a_server_fails(stage: Stage, tmp_path: Path, fail: Callable[[Server], None], name: str) -> None:
    """And comes back."""
    cluster = stage.cluster
    server = cluster.etcd if name == "etcd" else cluster.apiserver

    def disturb() -> None:
        fail(server)
        cluster.until_ready()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_both_are_killed(stage: Stage, tmp_path: Path) -> None:
    """And come back, the API server first."""
    cluster = stage.cluster

    def disturb() -> None:
        for server in (cluster.etcd, cluster.apiserver):
            server.kill()
        cluster.apiserver.start()
        time.sleep(AWAY)
        cluster.etcd.start()
        until(cluster.store.is_healthy, "etcd does not come back")
        if cluster.apiserver.process.poll() is not None:  # It gives up after a while, and is started again then.
            cluster.apiserver.wait()
            cluster.apiserver.start()
        cluster.until_ready()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_history_is_gone(stage: Stage, tmp_path: Path) -> None:
    """While knft heard nothing: it cannot go on where it was, lists again, and forgets what is no longer there."""
    cluster, log = stage.cluster, stage.follower.log
    _, forgotten = Scenario("", [service("forgotten", 90, *both_protocols("http", 80))], ()).manifests()

    def disturb() -> None:
        stage.applier.add(forgotten)
        stage.until_in_force()
        refusals = log.read_text().count(" 410")
        stage.follower.pause()
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.until_ready()
        # Now, as what the killed one had sent is waiting to be read.
        cluster.api.delete(forgotten)
        time.sleep(AWAY)
        cluster.store.compact()
        stage.follower.resume()
        until(lambda: log.read_text().count(" 410") > refusals, "nobody says that it is too late", stage.follower.check)

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_the_token_is_another(stage: Stage, account: Account, tmp_path: Path) -> None:
    """The old one has expired when the next request is due."""
    cluster, volume = stage.cluster, stage.follower.volume

    def disturb() -> None:
        old = account.brief_token(3)
        volume.write(old)
        # Whoever is let in is let in for a while; a new API server asks everybody.
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.until_ready()
        until(lambda: not account.is_known(old), "the token does not expire")
        volume.write(account.token())
        cluster.apiserver.kill()
        cluster.apiserver.start()
        cluster.until_ready()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_the_node_is_deleted(stage: Stage, tmp_path: Path) -> None:
    """The process ends with status 1; another one, on the node that was made again, is right."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        stage.cluster.api.delete(node)
        assert stage.follower.wait() == 1, stage.follower.tail()
        stage.applier.add(node)
        stage.follower.start()

    _expect_nothing_wrong(stage, tmp_path, disturb)


def test_the_node_loses_its_addresses(stage: Stage, tmp_path: Path) -> None:
    """For a while: the rules keep those that it had."""
    (node,) = Scenario("", [], ()).manifests()

    def disturb() -> None:
        held = stage.cluster.api.get(node)
        stage.cluster.api.replace({**held, "status": {**held["status"], "addresses": []}}, "/status")
        until(lambda: "has no addresses any more" in stage.follower.log.read_text(), "nobody notices")
        time.sleep(AWAY)
        stage.applier.add(node)

    _expect_nothing_wrong(stage, tmp_path, disturb)


def _expect_nothing_wrong(stage: Stage, folder: Path, disturb: Callable[[], None]) -> None:
    played = stage.play(folder, 1, disturb)
    assert played.faults == []
    assert played.untranslated == 0
    assert played.wrong == []
    # There was something to see.
    assert played.answered > 500
