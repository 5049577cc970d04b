"""``knft lint`` and ``knft preflight`` read what kubectl prints of a real API server, also of its dry runs."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.manifest_client import apply, kubectl
from tests.support import fast_yaml
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.lint_objects import TWO_NODES, endpoint_slice

pytestmark = pytest.mark.kernel

KINDS = "nodes,services,endpointslices,servicecidrs"
POD_CIDRS = ("--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48")
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


def _service(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Service as its author writes it: the API server allocates the rest."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}], **spec},
    }


@pytest.fixture(scope="module")
def captured(manifest_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the file of the documented capture: two nodes, Service web, and Service api with another port name."""
    ports = [{"name": "web", "port": 8080, "protocol": "TCP"}]
    slices = (endpoint_slice(), endpoint_slice(service="api", ports=ports))
    nodes = [{name: value for name, value in each.items() if name != "status"} for each in TWO_NODES]
    text = fast_yaml.dump_all((*nodes, _service("web"), _service("api"), *slices))
    apply(manifest_cluster, fast_yaml.dump_all([NAMESPACE]))
    apply(manifest_cluster, text)
    for each in TWO_NODES:
        status = json.dumps({"status": each["status"]})
        kubectl(manifest_cluster, "patch", "node", each["metadata"]["name"], "--subresource=status", "-p", status)
    path = tmp_path_factory.mktemp("captured") / "now.yaml"
    path.write_text(kubectl(manifest_cluster, "get", KINDS, "-A", "-o", "yaml"))
    yield path
    kubectl(manifest_cluster, "delete", "--wait=false", "-f", "-", stdin=text)


def _dry_run(cluster: Cluster, *objects: dict[str, Any]) -> str:
    return kubectl(cluster, "apply", "--dry-run=server", "-o", "yaml", "-f", "-", stdin=fast_yaml.dump_all(objects))


def _knft(namespace: Namespace, *arguments: str, stdin: str) -> tuple[int, dict[str, Any]]:
    """Run a command, and return its status and JSON output."""
    done: subprocess.CompletedProcess[str] = namespace.run([*KNFT, *arguments, "-o", "json"], stdin=stdin, check=False)
    return done.returncode, json.loads(done.stdout or "null") or pytest.fail(done.stderr)


def test_captured_objects_have_the_finding_of_the_broken_service(manifest_cluster: Cluster, captured: Path) -> None:
    status, report = _knft(manifest_cluster.namespace, "lint", "-f", "-", *POD_CIDRS, stdin=captured.read_text())
    problems = {(each["id"], each["object"]) for each in report["findings"] if each["severity"] == "problem"}
    # Nothing publishes the API server's own endpoints, because its address is a loopback address.
    assert problems == {("port-name-without-slice", "shop/api"), ("service-without-slices", "default/kubernetes")}
    assert status == 3


def test_dry_run_of_a_change_tells_what_happens_to_packets(manifest_cluster: Cluster, captured: Path) -> None:
    """A new Service has an address and a NodePort that the dry run does not keep; that of web changes its policy."""
    changed = (
        _service("new", type="NodePort"),
        _service("web", internalTrafficPolicy="Local", externalIPs=["203.0.113.9"]),
    )
    flags = ("--partial", "--against", str(captured), *POD_CIDRS)
    _, report = _knft(manifest_cluster.namespace, "lint", "-f", "-", *flags, stdin=_dry_run(manifest_cluster, *changed))
    assert {each["service"] for each in report["change"]["traffic"]} == {"shop/web:http"}
    assert any("shop/new" in note for note in report["notes"])


def test_preflight_of_a_node_without_kube_proxy_reads_the_capture(manifest_cluster: Cluster, captured: Path) -> None:
    flags = ("-f", str(captured), "--node", "node-1", *POD_CIDRS)
    _, report = _knft(manifest_cluster.namespace, "preflight", *flags, stdin="")
    states = {point["name"]: point["state"] for point in report["points"]}
    assert (states["node"], states["comparison"], report["node"]) == ("warning", "not checked", "node-1")
