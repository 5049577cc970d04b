"""One lab and one cluster for the session; the cluster's servers and knft run in the node's network namespace."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.service_account import ServiceAccount
from tests.packets.conftest import lab
from tests.support.lab.topology import Lab

__all__ = ["lab"]


@pytest.fixture(scope="session")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An etcd and an API server on the node's loopback."""
    with Cluster(lab.host("node").namespace, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def service_account(cluster: Cluster) -> ServiceAccount:
    """knft's ServiceAccount."""
    return ServiceAccount(cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the last lines of all logs to a failed test."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for path in sorted(Path(cluster.folder.parent).rglob("*.log")):
            report.sections.append((str(path), "\n".join(path.read_text(errors="replace").splitlines()[-20:])))
    return report
