"""Tests of the parts of ``tests.parity`` that need neither kube-proxy nor a kernel."""

import json
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import asdict

from tests.cluster.desired import desired_objects
from tests.parity.faults import FAULTS
from tests.parity.packets import packets
from tests.parity.random_cluster import Cluster, Endpoint, History, Service, Settings, Slice, manifests, random_history
from tests.parity.shrink import shrink, smaller

SEEDS = range(60)


def _values(field: str) -> Counter[Any]:
    services = (s for seed in SEEDS for cluster in random_history(seed, 2).clusters for s in cluster.services)
    return Counter(getattr(service, field) for service in services)


def test_seed_gives_the_same_history_each_time() -> None:
    assert random_history(7, 3) == random_history(7, 3)
    assert random_history(7, 3) != random_history(8, 3)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("type", {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}),
        ("families", {("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4")}),
        ("internal_policy", {"Cluster", "Local"}),
        ("external_policy", {"Cluster", "Local"}),
        ("ingress", {"", "VIP", "Proxy"}),
        ("sticky", {True, False}),
        ("has_external_ips", {True, False}),
        ("is_headless", {True, False}),
        ("other_proxy", {True, False}),
    ],
)
def test_histories_have_all_values_of_a_field(field: str, values: set[Any]) -> None:
    assert set(_values(field)) == values


def test_histories_have_ranges_udp_hints_terminating_endpoints_and_several_slices() -> None:
    services = [s for seed in SEEDS for cluster in random_history(seed, 2).clusters for s in cluster.services]
    endpoints = [endpoint for service in services for one in service.slices for endpoint in one.endpoints]
    assert any(service.ranges for service in services)
    assert any("dns" in service.ports for service in services)
    assert any(len([one for one in service.slices if one.family == "IPv4"]) > 1 for service in services)
    assert any(endpoint.zone_hint for endpoint in endpoints)
    assert any(endpoint.node_hint for endpoint in endpoints)
    assert any(endpoint.terminating and endpoint.serving for endpoint in endpoints)
    assert any(not endpoint.ready and not endpoint.terminating for endpoint in endpoints)


def test_objects_have_distinct_names_addresses_and_ports() -> None:
    for seed in SEEDS:
        for cluster in random_history(seed, 2).clusters:
            objects = manifests(cluster)
            assert len(desired_objects(objects, with_service_cidr=False)) == len(objects)
            ports = [port.get("nodePort") for item in objects for port in item.get("spec", {}).get("ports", ())]
            given = [port for port in ports if port]
            assert len(given) == len(set(given))
            assert packets(cluster)


def test_shrinking_keeps_only_what_differs() -> None:
    """A fault that concerns one terminating endpoint leaves one Service with one slice and this endpoint."""
    history = _with_terminating_endpoint()

    def differs(candidate: History) -> bool:
        services = candidate.clusters[-1].services
        return any(e.terminating for service in services for one in service.slices for e in one.endpoints)

    (cluster,) = shrink(history, differs, max_runs=500).clusters
    (service,) = cluster.services
    (one,) = service.slices
    (endpoint,) = one.endpoints
    assert endpoint.terminating
    assert asdict(service) == asdict(
        Service(service.number, families=service.families, ports=service.ports, slices=service.slices)
    )
    assert len(service.families) == len(service.ports) == 1


def _with_terminating_endpoint() -> History:
    one = Slice("IPv4", 8080, ("dns", "http"), (Endpoint("local-1"), Endpoint("node", ready=False, terminating=True)))
    other = Slice("IPv6", 8080, ("dns",), (Endpoint("remote-1"),))
    service = Service(1, "LoadBalancer", ports=("dns", "http"), slices=(other, one), sticky=True, ranges=("::/0",))
    clusters = (Cluster((service,)), Cluster((service, Service(2, slices=(other,)))))
    return History(Settings(masquerade_all=True), clusters)


def test_shrinking_stops_after_the_given_number_of_runs() -> None:
    tried: list[History] = []

    def differs(candidate: History) -> bool:
        tried.append(candidate)
        return False

    history = _with_terminating_endpoint()
    assert shrink(history, differs, max_runs=3) == history
    assert len(tried) == 3


def test_smaller_histories_differ_from_the_history_and_can_be_written() -> None:
    history = random_history(3, 2)
    for candidate in smaller(history):
        assert candidate != history
        for cluster in candidate.clusters:
            json.dumps(manifests(cluster))


def test_every_fault_replaces_an_existing_function() -> None:
    for fault in FAULTS.values():
        assert callable(getattr(fault.module, fault.function))
