"""``knft explain`` asks a ``knft run`` that watches a real API server: pods and zones, with the rights of the role."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from knft.apiserver.endpoint_pods import PAGE_SLICES
from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.fault_test_node import FLAGS
from tests.cluster.service_account import ServiceAccount
from tests.support.kernel_harness import service
from tests.support.knft_command import KNFT, knft
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

_SLICES = PAGE_SLICES + 3


def _slice(number: int) -> dict[str, Any]:
    """Return an EndpointSlice with one endpoint on a node of its own."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"web-{number:02}",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.244.7.{number}"],
                "conditions": {"ready": True},
                "nodeName": f"worker-{number}",
                "zone": f"zone-{number % 3}",
                "targetRef": {"kind": "Pod", "namespace": "default", "name": f"web-pod-{number}"},
            }
        ],
    }


def test_pods_and_zones_come_from_the_api_server(
    cluster: Cluster, service_account: ServiceAccount, tmp_path: Path
) -> None:
    """More EndpointSlices than a page has."""
    objects = [service("web", 77), *map(_slice, range(1, _SLICES + 1))]
    Applier(cluster).apply([*Scenario("", [], ()).manifests(), *objects])
    daemon = ClusterKnft(cluster, service_account, tmp_path, *FLAGS, "--min-sync-period=0")
    try:
        with closing(daemon):
            daemon.start()
            wait_until(lambda: daemon.log.read_text().count("full sync") == 2, "knft does not start", daemon.check)
            found = json.loads(cluster.namespace.run([*KNFT, "explain", "web", "-o", "json"]).stdout)
    finally:
        knft(cluster.namespace, "cleanup")
    assert found["warnings"] == []
    (port,) = [port for port in found["ports"] if port["family"] == "IPv4"]
    assert [(each["endpoint"], each["pod"], each["node"], each["zone"]) for each in port["endpoints"]] == sorted(
        (f"10.244.7.{number}:8080", f"web-pod-{number}", f"worker-{number}", f"zone-{number % 3}")
        for number in range(1, _SLICES + 1)
    )
