"""Consistent hashing in explanations, of objects and of rendered rules."""

from collections.abc import Callable
from typing import Any

import pytest

from knft.cli.explain_text import format_explanation
from knft.explain.sources import KernelSource, ObjectSource
from knft.model.annotations import Annotations
from knft.model.objects import EndpointSlice, Service
from tests.support.explain_sources import explained, of_objects, of_rules
from tests.support.kube_objects import endpoint_slice, ingress, service, service_port

MakeSource = Callable[..., KernelSource | ObjectSource]
ENDPOINTS = ("10.244.1.11", "10.244.2.11")


def _hashed(load_balancing: str, session_affinity: str = "None", **fields: Any) -> tuple[Service, EndpointSlice]:
    found = service(
        cluster_ip="10.96.0.10",
        ports=(service_port(node_port=30080),),
        annotations=Annotations(load_balancing=load_balancing),
        session_affinity=session_affinity,
        **{"type": "NodePort", **fields},
    )
    return found, endpoint_slice("web-1", *ENDPOINTS, service="web")


@pytest.mark.parametrize(
    ("load_balancing", "line"),
    [
        ("maglev", "load balancing  maglev: by the hash of the client's address and port\n"),
        ("source-hash", "load balancing  source-hash: by the hash of the client's address\n"),
    ],
)
@pytest.mark.parametrize("source", [of_objects, of_rules])
def test_text_says_what_is_hashed(source: MakeSource, load_balancing: str, line: str) -> None:
    found = explained("web", source(*_hashed(load_balancing)))
    assert found.ports[0].load_balancing == load_balancing
    assert line in format_explanation(found, None)


@pytest.mark.parametrize("source", [of_objects, of_rules])
@pytest.mark.parametrize("objects", [_hashed("random"), _hashed("maglev", "ClientIP")])
def test_no_line_if_no_client_is_hashed(source: MakeSource, objects: tuple[Service, EndpointSlice]) -> None:
    """ClientIP affinity takes precedence."""
    found = explained("web", source(*objects))
    assert found.ports[0].load_balancing == "random"
    assert "load balancing" not in format_explanation(found, None)


@pytest.mark.parametrize("load_balancing", ["random", "maglev", "source-hash"])
def test_rules_of_a_wide_service_port_say_what_is_hashed(load_balancing: str) -> None:
    """Many load balancer IPs with source ranges: its frontends lead to a chain of its own."""
    vips = [ingress(f"203.0.113.{number}") for number in range(1, 21)]
    ranges = tuple(f"198.51.100.{number}/32" for number in range(1, 21))
    fields: dict[str, Any] = {"type": "LoadBalancer", "ingresses": vips, "load_balancer_source_ranges": ranges}
    source = of_rules(*_hashed(load_balancing, **fields))
    assert any("knft wide-" in name for probes in source.probes.values() for name in probes.rules.chains)
    assert explained("web", source).ports[0].load_balancing == load_balancing


def test_rules_without_endpoints_do_not_say_what_is_hashed() -> None:
    assert explained("web", of_rules(_hashed("maglev")[0])).ports[0].load_balancing == ""


@pytest.mark.parametrize("what", ["10.96.0.10", ":30080/tcp", *ENDPOINTS])
def test_rules_have_the_endpoints_and_frontends(what: str) -> None:
    """Tables of hashes have no frontends in their keys: the number of the Service port leads to them."""
    ports = explained(what, of_rules(*_hashed("maglev"))).ports
    assert {each.endpoint for port in ports for each in port.endpoints} >= (
        {f"{what}:8080"} if what in ENDPOINTS else {f"{address}:8080" for address in ENDPOINTS}
    )
    assert {each.what for port in ports for each in port.frontends} == {"10.96.0.10:80/tcp", ":30080/tcp"}
