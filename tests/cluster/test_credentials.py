"""Credentials of knft in a pod and in a kubeconfig, which are replaced while it runs, or expire."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft, KnftInPod
from tests.cluster.fault_test_node import FLAGS, RANGES, ZONE
from tests.cluster.marker import Marker
from tests.cluster.service_account import ServiceAccount
from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

KNFT_FLAGS = (*FLAGS, "--min-sync-period=0")


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for one test."""
    namespace = Namespace.create("alone")
    with closing(namespace), Cluster(namespace, tmp_path_factory.mktemp("alone")) as cluster:
        Applier(cluster).apply(Scenario("", [], ()).manifests())
        yield cluster


@pytest.mark.parametrize("kind", [KnftInPod, ClusterKnft])
def test_knft_uses_a_replaced_ca_and_token(own_cluster: Cluster, tmp_path: Path, kind: type[ClusterKnft]) -> None:
    """The API server gets a certificate of another CA, and the old token expires; later changes are programmed."""
    account = ServiceAccount(own_cluster)
    marker = Marker(own_cluster.api, own_cluster.namespace)
    daemon = kind(own_cluster, account, tmp_path, *KNFT_FLAGS)
    with closing(daemon):
        daemon.start()
        _expect_programmed(marker, daemon)
        daemon.volume.replace(old := account.short_lived_token(2))
        other = own_cluster.keys.new_ca(tmp_path / "another")
        other.certificate("apiserver", "kubernetes")
        own_cluster.keys.copy_from("apiserver", other)
        own_cluster.apiserver.kill()
        own_cluster.apiserver.start()
        own_cluster.trust_ca(other.path("ca.crt"))
        own_cluster.wait_ready()
        wait_until(
            lambda: "the server's certificate is not trusted" in daemon.log.read_text(),
            "knft does not log it",
            daemon.check,
        )
        wait_until(lambda: not account.is_accepted(old), "the token does not expire")
        daemon.volume.replace(account.token(), Path(other.path("ca.crt")))
        _expect_programmed(Marker(own_cluster.api, own_cluster.namespace), daemon)
        assert old not in daemon.log.read_text()


def test_knft_recovers_when_an_expired_token_is_replaced(own_cluster: Cluster, tmp_path: Path) -> None:
    """The token expires before and after the first list. knft logs it without the token."""
    account = ServiceAccount(own_cluster)
    marker = Marker(own_cluster.api, own_cluster.namespace)
    daemon = ClusterKnft(own_cluster, account, tmp_path, *KNFT_FLAGS)
    expired = account.short_lived_token(-1)
    daemon.volume.replace(expired)
    with closing(daemon):
        daemon.start()
        wait_until(lambda: "401" in daemon.log.read_text(), "knft does not log it", daemon.check)
        daemon.volume.replace(account.token())
        _expect_programmed(marker, daemon)
        daemon.volume.replace(expired)
        refusals = daemon.log.read_text().count("401")
        own_cluster.apiserver.kill()
        own_cluster.apiserver.start()
        own_cluster.wait_ready()
        wait_until(lambda: daemon.log.read_text().count("401") > refusals, "knft does not log it", daemon.check)
        daemon.volume.replace(account.token())
        _expect_programmed(marker, daemon)
        assert expired not in daemon.log.read_text()


def test_stop_while_the_api_server_hangs(own_cluster: Cluster, tmp_path: Path) -> None:
    """knft exits although the API server does not answer; the rules stay."""
    daemon = ClusterKnft(own_cluster, ServiceAccount(own_cluster), tmp_path, *KNFT_FLAGS)
    with closing(daemon):
        marker = Marker(own_cluster.api, own_cluster.namespace)
        daemon.start()
        _expect_programmed(marker, daemon)
        own_cluster.apiserver.pause()
        assert daemon.stop() == 0
        assert marker.is_programmed()
    knft(own_cluster.namespace, "cleanup")


def _expect_programmed(marker: Marker, daemon: ClusterKnft) -> None:
    marker.write(ZONE, RANGES)
    marker.wait(daemon.check)
