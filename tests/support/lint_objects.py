"""Builders of manifests for ``knft lint``; omitted fields have the values of a small correct cluster."""

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]

PORT = {"name": "http", "port": 80}
NODES = ("node-1", "node-2")
DUAL: Object = {
    "clusterIP": "10.96.0.10",
    "clusterIPs": ["10.96.0.10", "fd00:10:96::10"],
    "ipFamilies": ["IPv4", "IPv6"],
}


def service(
    name: str = "web",
    *,
    ips: Iterable[str | Object] = (),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Object:
    """Return a Service with port ``http``; ``ips`` are those of its load balancer."""
    ingress = [{"ip": each} if isinstance(each, str) else each for each in ips]
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": created}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | {"labels": labels or {}, "annotations": annotations or {}},
        "spec": {"clusterIP": "10.96.0.10", "ports": [PORT], "selector": {"app": name}, **spec},
        "status": {"loadBalancer": {"ingress": ingress}},
    }


def node_port(**spec: Any) -> Object:
    """Return a Service with a NodePort."""
    return service(type="NodePort", ports=[PORT | {"nodePort": 30080}], **spec)


def load_balancer(*ips: str | Object, **spec: Any) -> Object:
    """Return a Service with load balancer IPs and without a NodePort."""
    return service(type="LoadBalancer", ips=ips, allocateLoadBalancerNodePorts=False, **spec)


def endpoint(node: int = 1, number: int = 11, *, family: str = "IPv4", **more: Any) -> Object:
    """Return an endpoint on a node."""
    start = f"10.244.{node}." if family == "IPv4" else f"fd00:10:244:{node}::"
    return {"addresses": [f"{start}{number}"], "nodeName": f"node-{node}", **more}


def endpoint_slice(
    *endpoints: Object, service: str | None = "web", ports: Any = None, family: str = "IPv4", name: str = "",
    labels: dict[str, str] | None = None,
) -> Object:  # fmt: skip
    """Return an EndpointSlice, by default with an endpoint on each node."""
    own = {} if service is None else {"kubernetes.io/service-name": service}
    listed = endpoints or (endpoint(1, family=family), endpoint(2, family=family))
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name or f"{service or 'lost'}-{family.lower()}",
            "namespace": "shop",
            "labels": own | (labels or {}),
        },
        "addressType": family,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}] if ports is None else ports,
        "endpoints": list(listed),
    }  # fmt: skip


def node(number: int, *, zone: str | None = "zone-a", families: Iterable[str] = ("IPv4", "IPv6")) -> Object:
    """Return a Node with an address and a pod CIDR in each family."""
    addresses = {"IPv4": f"192.0.2.{10 + number}", "IPv6": f"2001:db8:1::{10 + number}"}
    cidrs = {"IPv4": f"10.244.{number}.0/24", "IPv6": f"fd00:10:244:{number}::/64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": {"topology.kubernetes.io/zone": zone} if zone else {}},
        "spec": {"podCIDRs": [cidrs[family] for family in families]},
        "status": {"addresses": [{"type": "InternalIP", "address": addresses[family]} for family in families]},
    }


def service_cidr(*cidrs: str) -> Object:
    """Return a ServiceCIDR."""
    metadata = {"name": "kubernetes"}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": metadata, "spec": {"cidrs": cidrs}}


TWO_NODES = (node(1), node(2))
