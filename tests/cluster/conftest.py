"""One lab and one cluster for the session; the cluster's servers and knft run in the node's network namespace."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from deploy.programs.modules import module_folder
from tests.cluster.cluster import Cluster
from tests.cluster.manifest_client import apply, kubectl
from tests.cluster.service_account import ServiceAccount
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.topology import Lab
from tests.support.packets.session_lab import lab

__all__ = ["lab"]

_PROMETHEUS_OPERATOR = (
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
)


@pytest.fixture(scope="session")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An etcd and an API server on the node's loopback."""
    with Cluster(lab.host("node").namespace, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def service_account(cluster: Cluster) -> ServiceAccount:
    """knft's ServiceAccount."""
    return ServiceAccount(cluster)


@pytest.fixture(scope="session")
def manifest_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server of its own: tests of manifests also remove knft's objects, which other tests use."""
    namespace = Namespace.create("manifests")
    with netlink(namespace) as link:
        link.up("lo")
    with Cluster(namespace, tmp_path_factory.mktemp("manifests")) as cluster:
        yield cluster
    namespace.close()


@pytest.fixture(scope="session")
def prometheus_operator(manifest_cluster: Cluster) -> None:
    """Define the resources of Prometheus Operator."""
    folder = module_folder(*_PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    names = ("servicemonitors", "prometheusrules")
    text = "---\n".join((folder / f"monitoring.coreos.com_{name}.yaml").read_text() for name in names)
    apply(manifest_cluster, text)
    definitions = [f"crd/{name}.monitoring.coreos.com" for name in names]
    kubectl(manifest_cluster, "wait", "--for=condition=Established", "--timeout=60s", *definitions)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the last lines of all logs to a failed test."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    cluster = arguments.get("cluster") or arguments.get("manifest_cluster")
    if report.failed and isinstance(cluster, Cluster):
        for path in sorted(Path(cluster.folder.parent).rglob("*.log")):
            report.sections.append((str(path), "\n".join(path.read_text(errors="replace").splitlines()[-20:])))
    return report
