"""All endpoints of a Service are chosen equally often."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.knft_command import knft, sync_once, write_manifests
from tests.support.lab import plan
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial_many
from tests.support.scenario import VERSIONS, Scenario, address

CONNECTIONS = 3000
PODS = ("local-1", "local-2", "local-3", *(f"remote-{number}" for number in range(1, 8)))
# Critical values of the chi-squared distribution for p = 10^-6, by number of endpoints.
CRITICAL = {2: 23.93, 3: 27.63, 5: 33.38, 10: 44.81}

pytestmark = pytest.mark.kernel


def _cluster(size: int, protocol: str = "TCP") -> Scenario:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "even"},
        "spec": {"clusterIP": "$cluster.30", "ports": [{"port": 80, "protocol": protocol}]},
    }
    endpoints: dict[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "even", "labels": {"kubernetes.io/service-name": "even"}},
        "ports": [{"name": "", "port": 8080, "protocol": protocol}],
        "endpoints": [{"addresses": [f"${pod}"]} for pod in PODS[:size]],
    }
    return Scenario("", [service, endpoints], ())


def chi_squared(counts: list[int]) -> float:
    """Return Pearson's chi-squared statistic against equal probabilities."""
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", CRITICAL)
def test_endpoints_share_connections_equally(lab: Lab, tmp_path: Path, size: int, version: plan.Version) -> None:
    """3 000 connections are spread as if at random, and none is lost."""
    scenario, node = _cluster(size), lab.host("node").namespace
    write_manifests(tmp_path, scenario.manifests())
    sync_once(node, tmp_path, *scenario.arguments())
    with Responders() as servers:
        for pod in PODS[:size]:
            servers.serve(lab.host(pod), 8080)
        counts = dial_many(lab.host("local-4"), address("cluster.30", version), 80, "tcp", CONNECTIONS)
    knft(node, "cleanup")

    assert set(PODS[:size]) == counts.keys()
    assert counts.total() == CONNECTIONS
    assert chi_squared(list(counts.values())) < CRITICAL[size], counts


@pytest.mark.parametrize("version", VERSIONS)
def test_endpoints_share_udp_datagrams_equally(lab: Lab, tmp_path: Path, version: plan.Version) -> None:
    """Each datagram comes from a new port, like queries of a DNS resolver; none is lost."""
    scenario, node = _cluster(3, "UDP"), lab.host("node").namespace
    write_manifests(tmp_path, scenario.manifests())
    sync_once(node, tmp_path, *scenario.arguments())
    with Responders() as servers:
        for pod in PODS[:3]:
            servers.serve(lab.host(pod), 8080, "udp")
        counts = dial_many(lab.host("local-4"), address("cluster.30", version), 80, "udp", CONNECTIONS)
    knft(node, "cleanup")

    assert set(PODS[:3]) == counts.keys()
    assert chi_squared(list(counts.values())) < CRITICAL[3], counts


def test_statistic_detects_unequal_probabilities() -> None:
    """An endpoint of three with 20 % more than its share is detected, one with 10 % is not."""
    assert chi_squared([1100, 950, 950]) < CRITICAL[3] < chi_squared([1200, 900, 900])
