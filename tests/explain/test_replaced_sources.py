"""First lines that say at which frontends endpoints do not see the client's address."""

from typing import Any

import pytest
from msgspec.structs import replace

from knft.config import Config
from tests.support.explain_sources import CONFIG, NODE_IP, first_line, of_objects, of_rules
from tests.support.kube_objects import endpoint, endpoint_slice, ingress, service, service_port

SEEN = "endpoints see the node's address instead of the client's in connections"
PORTS = (service_port(node_port=30080),)
BALANCED: dict[str, Any] = {
    "type": "LoadBalancer",
    "ports": PORTS,
    "external_ips": ("198.51.100.5",),
    "ingresses": (ingress("203.0.113.5"),),
}
LOCAL = endpoint("10.244.1.11", node="node-1")


def line(what: str = "web", config: Config = CONFIG, **spec: Any) -> str:
    """Return the first line about a Service with a local endpoint; objects and rules give the same sentence."""
    objects = (service(**spec), endpoint_slice("web-1", LOCAL))
    found = first_line(what, of_objects(*objects, config=config))
    _, seen, sentence = found.partition(SEEN)
    assert first_line(what, of_rules(*objects, config=config)).partition(SEEN)[1:] == (seen, sentence)
    return sentence


def test_cluster_ip_keeps_the_addresses_of_pods() -> None:
    """Those of other hosts are replaced, but they are not its usual clients; the outcomes say it."""
    assert line() == ""
    assert line("10.96.0.1:80") == ""


def test_cluster_ip_that_masquerades_all() -> None:
    assert line(config=replace(CONFIG, masquerade_all=True)) == " from any host to 10.96.0.1:80/tcp"


@pytest.mark.parametrize(
    ("what", "frontends"),
    [
        ("web", "198.51.100.5:80/tcp, 203.0.113.5:80/tcp and :30080/tcp"),
        ("203.0.113.5", "203.0.113.5:80/tcp"),
        ("203.0.113.5:80", "203.0.113.5:80/tcp"),
        (":30080", ":30080/tcp"),
        (f"{NODE_IP}:30080", ":30080/tcp"),
    ],
)
def test_external_frontends_with_policy_cluster(what: str, frontends: str) -> None:
    """A question about one frontend is answered about this one."""
    assert line(what, **BALANCED) == f" from any host to {frontends}"


def test_policy_local_keeps_the_addresses_of_clients() -> None:
    assert line(**BALANCED, external_traffic_policy="Local") == ""


@pytest.mark.parametrize(
    ("ranges", "hosts"), [("198.51.100.0/24", "from outside"), ("10.244.0.0/16", "from pods"), ("10.0.0.0/8", "")]
)
def test_clients_that_get_no_connection_are_not_named(ranges: str, hosts: str) -> None:
    """Source ranges exclude the others."""
    found = line("203.0.113.5:80", **BALANCED, load_balancer_source_ranges=(ranges,))
    assert found == f" {hosts or 'from any host'} to 203.0.113.5:80/tcp"


def test_endpoint_is_no_frontend() -> None:
    assert line("10.244.1.11", **BALANCED) == ""
