"""Explanations from rules alone: frontends, endpoints and affinity of a Service with many frontends."""

import json
from typing import Any

from knft.comparison.explained import kernel_rules, kernel_source
from knft.comparison.rendered import knft_rules
from knft.config import Config
from knft.explain.explain import explain
from knft.explain.query import parse_query
from knft.explain.sources import KernelSource
from knft.families import Family
from knft.model.objects import ObjectChange
from knft.source.decode import decode

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16",), service_cidrs=("10.96.0.0/16",))
LONG = "n" * 63
EXTERNAL, ENDPOINTS = 60, 20


def _kernel(*objects: dict[str, Any]) -> KernelSource:
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    changes = tuple(ObjectChange(None, item) for item in decode(document).objects)
    return kernel_source(knft_rules(changes, CONFIG, ("192.0.2.11",)), ("192.0.2.11",))


def _service(name: str, namespace: str, port: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"name": port, "port": 80}], **spec},
    }


def _slice(name: str, namespace: str, port: str, count: int) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": port, "port": 8080}],
        "endpoints": [{"addresses": [f"10.244.2.{number}"]} for number in range(1, count + 1)],
    }


def test_endpoints_of_a_service_with_many_frontends_are_found() -> None:
    """Its endpoints are in the maps of the wide layout, under a number."""
    external = [f"203.0.113.{number}" for number in range(1, EXTERNAL + 1)]
    kernel = _kernel(
        _service("wide", "shop", "http", clusterIP="10.96.0.10", externalIPs=external, sessionAffinity="ClientIP"),
        _slice("wide", "shop", "http", ENDPOINTS),
    )
    rules = kernel.probes[next(iter(kernel.probes))].rules
    assert any(name.startswith("ip knft wide-") for name in rules.chains)
    for what in ("10.244.2.7", "10.244.2.7:8080"):
        (port,) = explain(parse_query(what), kernel).ports
        assert port.port == "shop/wide:http"
        assert [each.endpoint for each in port.endpoints] == ["10.244.2.7:8080"]
        assert port.other_endpoints == ENDPOINTS - 1
    assert len(port.frontends) == EXTERNAL + 1
    assert port.affinity_seconds == 10800
    assert not explain(parse_query("10.244.2.7:8081"), kernel).found


def test_names_that_the_kernel_cuts_off_are_found() -> None:
    """A comment has 128 bytes, in which the name of a Service always has room."""
    kernel = _kernel(_service(LONG, LONG, "a-long-name", clusterIP="10.96.0.10"), _slice(LONG, LONG, "a-long-name", 1))
    explained = explain(parse_query(f"{LONG}/{LONG}"), kernel)
    assert explained.found
    assert explained.ports[0].endpoints[0].endpoint == "10.244.2.1:8080"


def test_own_address_is_outside_of_the_pod_range() -> None:
    """The bridge of pods accepts NodePorts too, but the node uses another address as its source."""
    own = ("10.244.1.1", "192.0.2.30", "192.0.2.5")
    config = Config("node-1", cluster_cidrs=("10.244.0.0/16",), nodeport_addresses=("all",))
    rules = kernel_rules(knft_rules((), config, own), own)
    assert rules.node_ips[Family.IPV4] == "192.0.2.5"
    assert rules.nodeport_addresses[Family.IPV4] == ("192.0.2.5", "192.0.2.30", "10.244.1.1")


def test_own_address_accepts_node_ports_if_another_than_the_bridge_does() -> None:
    own = ("192.0.2.5", "192.0.2.30", "10.244.1.1")
    config = Config("node-1", cluster_cidrs=("10.244.0.0/16",), nodeport_addresses=("192.0.2.30/32", "10.244.0.0/16"))
    rules = kernel_rules(knft_rules((), config, own), own)
    assert rules.node_ips[Family.IPV4] == "192.0.2.30"
    assert rules.nodeport_addresses[Family.IPV4] == ("192.0.2.30", "10.244.1.1")
