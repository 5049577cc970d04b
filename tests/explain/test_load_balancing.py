"""Consistent hashing in explanations, of objects and of rendered rules."""

import pytest

from knft.cli.explain_text import format_explanation
from knft.model.annotations import Annotations
from knft.model.objects import EndpointSlice, Service
from tests.support.explain_sources import explained, of_objects, of_rules
from tests.support.kube_objects import endpoint_slice, service, service_port

ENDPOINTS = ("10.244.1.11", "10.244.2.11")


def _hashed(load_balancing: str, session_affinity: str = "None") -> tuple[Service, EndpointSlice]:
    found = service(
        cluster_ip="10.96.0.10",
        type="NodePort",
        ports=(service_port(node_port=30080),),
        annotations=Annotations(load_balancing=load_balancing),
        session_affinity=session_affinity,
    )
    return found, endpoint_slice("web-1", *ENDPOINTS, service="web")


@pytest.mark.parametrize(
    ("load_balancing", "line"),
    [
        ("maglev", "load balancing  maglev: by the hash of the client's address and port\n"),
        ("source-hash", "load balancing  source-hash: by the hash of the client's address\n"),
    ],
)
def test_text_says_what_is_hashed(load_balancing: str, line: str) -> None:
    found = explained("web", of_objects(*_hashed(load_balancing)))
    assert found.ports[0].load_balancing == load_balancing
    assert line in format_explanation(found, None)


@pytest.mark.parametrize("objects", [_hashed("random"), _hashed("maglev", "ClientIP")])
def test_no_line_if_no_client_is_hashed(objects: tuple[Service, EndpointSlice]) -> None:
    """ClientIP affinity takes precedence."""
    found = explained("web", of_objects(*objects))
    assert found.ports[0].load_balancing == "random"
    assert "load balancing" not in format_explanation(found, None)


@pytest.mark.parametrize("what", ["10.96.0.10", ":30080/tcp", *ENDPOINTS])
def test_rules_have_the_endpoints_and_frontends(what: str) -> None:
    """Tables of hashes have no frontends in their keys: the number of the Service port leads to them."""
    ports = explained(what, of_rules(*_hashed("maglev"))).ports
    assert {each.endpoint for port in ports for each in port.endpoints} >= (
        {f"{what}:8080"} if what in ENDPOINTS else {f"{address}:8080" for address in ENDPOINTS}
    )
    assert {each.what for port in ports for each in port.frontends} == {"10.96.0.10:80/tcp", ":30080/tcp"}
