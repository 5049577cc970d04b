"""Sources of explanations from a few objects: of the objects, and of the rules that knft renders from them."""

from typing import Any

from knft.comparison.explained import kernel_rules, kernel_source, object_source
from knft.comparison.rendered import knft_rules
from knft.config import Config
from knft.explain.explain import explain
from knft.explain.explanation import Explanation
from knft.explain.query import parse_query
from knft.explain.sources import KernelSource, NodeRules, ObjectSource
from knft.model.objects import EndpointPort, EndpointSlice, KubeObject, ObjectChange, Service
from tests.support.explain_statements import checked_statements
from tests.support.kube_objects import endpoint_slice, service, slice_port

NODE_IP = "192.0.2.11"
CONFIG = Config(
    "node-1", cluster_cidrs=("10.244.0.0/16",), service_cidrs=("10.96.0.0/16",), node_ips=(NODE_IP, "2001:db8:1::11")
)


def served(name: str, cluster_ip: str, **spec: Any) -> tuple[Service, EndpointSlice]:
    """Return a Service with port http, 80, and a slice with one endpoint on another node."""
    found = service(name, cluster_ip=cluster_ip, **spec)
    ports = tuple(port.name for port in found.spec.ports or ())
    return found, endpoint_slice(f"{name}-1", "10.244.2.11", service=name, ports=slice_ports(*ports))


def slice_ports(*names: str) -> tuple[EndpointPort, ...]:
    """Return ports of a slice, with the numbers 8080, 8081 and so on."""
    return tuple(slice_port(name, 8080 + number) for number, name in enumerate(names))


def _changes(objects: tuple[KubeObject, ...]) -> tuple[ObjectChange, ...]:
    return tuple(ObjectChange(None, item) for item in objects)


def of_objects(*objects: KubeObject, config: Config = CONFIG, own: tuple[str, ...] = ()) -> ObjectSource:
    """Return the source of objects, on a node that has the addresses ``own`` too."""
    return object_source(_changes(objects), config, own)


def of_rules(*objects: KubeObject, config: Config = CONFIG, own: tuple[str, ...] = ()) -> KernelSource:
    """Return the source of the rules rendered from objects."""
    addresses = (*config.node_ips, *own)
    return kernel_source(knft_rules(_changes(objects), config, addresses), addresses)


def rules_of(*objects: KubeObject, config: Config = CONFIG, own: tuple[str, ...] = ()) -> NodeRules:
    """Return the rules rendered from objects, to compare with a source."""
    addresses = (*config.node_ips, *own)
    return kernel_rules(knft_rules(_changes(objects), config, addresses), addresses)


def explained(what: str, source: ObjectSource | KernelSource) -> Explanation:
    """Explain WHAT, and check each statement."""
    found = explain(parse_query(what), source)
    assert checked_statements(found)
    return found


def first_line(what: str, source: ObjectSource | KernelSource) -> str:
    """Return the conclusion about WHAT."""
    return "; ".join(each.text for each in explained(what, source).conclusion)
