"""Who knft is, as a pod and by a kubeconfig: what is replaced while it runs, and what no longer counts."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.fault_stage import FLAGS, RANGES, ZONE
from tests.cluster.knft_process import KnftInPod, KnftProcess
from tests.cluster.marker import Marker
from tests.cluster.service_account import ServiceAccount
from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

ALONE = (*FLAGS, "--min-sync-period=0")


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that a test may spoil."""
    namespace = Namespace.create("alone")
    with closing(namespace), Cluster(namespace, tmp_path_factory.mktemp("alone")) as cluster:
        Applier(cluster).apply(Scenario("", [], ()).manifests())
        yield cluster


@pytest.mark.parametrize("kind", [KnftInPod, KnftProcess])
def test_authority_and_token_are_replaced(alone: Cluster, tmp_path: Path, kind: type[KnftProcess]) -> None:
    """The API server is another one's then, and the old token has expired: what is written after that is in force."""
    account = ServiceAccount(alone)
    marker = Marker(alone.api, alone.namespace)
    follower = kind(alone, account, tmp_path, *ALONE)
    with closing(follower):
        follower.start()
        _expect_in_force(marker, follower)
        follower.volume.replace(old := account.short_lived_token(2))
        other = alone.keys.another(tmp_path / "another")
        other.certificate("apiserver", "kubernetes")
        alone.keys.take("apiserver", other)
        alone.apiserver.kill()
        alone.apiserver.start()
        alone.trust_ca(other.path("ca.crt"))
        alone.wait_ready()
        wait_until(
            lambda: "the server's certificate is not trusted" in follower.log.read_text(),
            "nobody notices",
            follower.check,
        )
        wait_until(lambda: not account.is_accepted(old), "the token does not expire")
        follower.volume.replace(account.token(), Path(other.path("ca.crt")))
        _expect_in_force(Marker(alone.api, alone.namespace), follower)
        assert old not in follower.log.read_text()


def test_an_expired_token_heals(alone: Cluster, tmp_path: Path) -> None:
    """Before the first list, and after it; it is said, without the token."""
    account = ServiceAccount(alone)
    marker = Marker(alone.api, alone.namespace)
    follower = KnftProcess(alone, account, tmp_path, *ALONE)
    expired = account.short_lived_token(-1)
    follower.volume.replace(expired)
    with closing(follower):
        follower.start()
        wait_until(lambda: "401" in follower.log.read_text(), "nobody notices", follower.check)
        follower.volume.replace(account.token())
        _expect_in_force(marker, follower)
        follower.volume.replace(expired)
        said = follower.log.read_text().count("401")
        alone.apiserver.kill()
        alone.apiserver.start()
        alone.wait_ready()
        wait_until(lambda: follower.log.read_text().count("401") > said, "nobody notices", follower.check)
        follower.volume.replace(account.token())
        _expect_in_force(marker, follower)
        assert expired not in follower.log.read_text()


def test_the_end_is_quick_and_quiet(alone: Cluster, tmp_path: Path) -> None:
    """Also while the API server answers nothing; the rules stay."""
    follower = KnftProcess(alone, ServiceAccount(alone), tmp_path, *ALONE)
    with closing(follower):
        marker = Marker(alone.api, alone.namespace)
        follower.start()
        _expect_in_force(marker, follower)
        alone.apiserver.pause()
        assert follower.stop() == 0
        assert marker.is_in_force()
    knft(alone.namespace, "cleanup")


def _expect_in_force(marker: Marker, follower: KnftProcess) -> None:
    marker.write(ZONE, RANGES)
    marker.wait(follower.check)
