"""Who knft is, as a pod and by a kubeconfig: what is replaced while it runs, and what no longer counts."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.account import Account
from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.follower import Follower, InPod
from tests.cluster.marker import Marker
from tests.cluster.played import FLAGS, RANGES, ZONE
from tests.packets.node import knft
from tests.packets.running import until
from tests.packets.scenario import Scenario
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

ALONE = (*FLAGS, "--min-sync-period=0")


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that a test may spoil."""
    namespace = Namespace.create("alone")
    with closing(namespace), Cluster(namespace, tmp_path_factory.mktemp("alone")) as cluster:
        Applier(cluster).apply(Scenario("", [], ()).manifests())
        yield cluster


@pytest.mark.parametrize("kind", [InPod, Follower])
def test_authority_and_token_are_replaced(alone: Cluster, tmp_path: Path, kind: type[Follower]) -> None:
    """The API server is another one's then, and the old token has expired: what is written after that is in force."""
    account = Account(alone)
    marker = Marker(alone.api, alone.namespace)
    follower = kind(alone, account, tmp_path, *ALONE)
    with closing(follower):
        follower.start()
        _expect_in_force(marker, follower)
        follower.volume.write(old := account.brief_token(2))
        other = alone.keys.another(tmp_path / "another")
        other.certificate("apiserver", "kubernetes")
        alone.keys.take("apiserver", other)
        alone.apiserver.kill()
        alone.apiserver.start()
        alone.trust(other.path("ca.crt"))
        alone.until_ready()
        until(lambda: "its certificate is not trusted" in follower.log.read_text(), "nobody notices", follower.check)
        until(lambda: not account.is_known(old), "the token does not expire")
        follower.volume.write(account.token(), Path(other.path("ca.crt")))
        _expect_in_force(Marker(alone.api, alone.namespace), follower)
        assert old not in follower.log.read_text()


def test_an_expired_token_heals(alone: Cluster, tmp_path: Path) -> None:
    """Before the first list, and after it; it is said, without the token."""
    account = Account(alone)
    marker = Marker(alone.api, alone.namespace)
    follower = Follower(alone, account, tmp_path, *ALONE)
    expired = account.brief_token(-1)
    follower.volume.write(expired)
    with closing(follower):
        follower.start()
        until(lambda: "401" in follower.log.read_text(), "nobody notices", follower.check)
        follower.volume.write(account.token())
        _expect_in_force(marker, follower)
        follower.volume.write(expired)
        said = follower.log.read_text().count("401")
        alone.apiserver.kill()
        alone.apiserver.start()
        alone.until_ready()
        until(lambda: follower.log.read_text().count("401") > said, "nobody notices", follower.check)
        follower.volume.write(account.token())
        _expect_in_force(marker, follower)
        assert expired not in follower.log.read_text()


def test_the_end_is_quick_and_quiet(alone: Cluster, tmp_path: Path) -> None:
    """Also while the API server answers nothing; the rules stay."""
    follower = Follower(alone, Account(alone), tmp_path, *ALONE)
    with closing(follower):
        marker = Marker(alone.api, alone.namespace)
        follower.start()
        _expect_in_force(marker, follower)
        alone.apiserver.pause()
        assert follower.stop() == 0
        assert marker.is_in_force()
    knft(alone.namespace, "cleanup")


def _expect_in_force(marker: Marker, follower: Follower) -> None:
    marker.write(ZONE, RANGES)
    marker.wait(follower.check)
