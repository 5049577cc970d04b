"""Converts the objects of scenarios to those that are sent to an API server, without side effects.

Scenarios have the fields that knft reads. More fields are set here, so that the API server chooses none itself.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, NamedTuple

from tests.support.lab.plan import SERVICES

Key = tuple[str, str, str]
"""Kind, namespace ("" where the kind has none) and name."""

KINDS = ("ServiceCIDR", "Node", "Service", "EndpointSlice")
"""The kinds that knft watches, in the order in which they are created."""
_NAMESPACED = frozenset({"Service", "EndpointSlice"})
FIRST_PORT = 15000
"""The first of the node ports that are chosen here instead of by the API server; nothing else uses them."""
LAST_PORT = 32767
SCENARIO_SERVICE_CIDR: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "ServiceCIDR",
    "metadata": {"name": "scenarios"},
    "spec": {"cidrs": [SERVICES.ipv4, SERVICES.ipv6]},
}
"""The service CIDR of scenarios. The API server's own is another one, because it cannot be deleted."""
_READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": None}]}


class DesiredObject(NamedTuple):
    """An object as it is sent; ``status`` is written to the status subresource.

    ``created`` is its creation timestamp, None for none; ``dated`` tells whether that has to be stored.
    """

    item: dict[str, Any]
    status: dict[str, Any] | None = None
    created: str | None = None
    dated: bool = False


def key_of(item: dict[str, Any]) -> Key:
    """Return kind, namespace and name of an object."""
    kind, metadata = item["kind"], item["metadata"]
    return kind, metadata.get("namespace", "default") if kind in _NAMESPACED else "", metadata["name"]


def desired_objects(objects: Sequence[dict[str, Any]], *, with_service_cidr: bool = True) -> dict[Key, DesiredObject]:
    """Return the objects that an API server has to hold, in the order of creation."""
    ports = count(FIRST_PORT)
    # If one Service has a creation timestamp, all are stored; a Service without one is the youngest.
    dated = any("creationTimestamp" in item["metadata"] for item in objects if item["kind"] == "Service")
    found = [SCENARIO_SERVICE_CIDR] if with_service_cidr else []
    found += sorted(objects, key=lambda item: KINDS.index(item["kind"]))
    return {key_of(one.item): one for one in (_desired(item, ports, dated=dated) for item in found)}


def _desired(item: dict[str, Any], ports: Iterable[int], *, dated: bool) -> DesiredObject:
    item = deepcopy(item)
    status = item.pop("status", None)
    if item["kind"] in _NAMESPACED:
        item["metadata"].setdefault("namespace", "default")
    if item["kind"] == "ServiceCIDR":
        # The API server's own ServiceCIDR has that name.
        item["metadata"]["name"] = item["metadata"]["name"].replace("kubernetes", "scenario")
        return DesiredObject(item, _READY)
    if item["kind"] == "Service":
        _complete(item["spec"], iter(ports))
        return DesiredObject(item, status, item["metadata"].pop("creationTimestamp", None), dated=dated)
    return DesiredObject(item, status)


def _complete(spec: dict[str, Any], ports: Any) -> None:
    """Set what the API server would choose: the IP family policy, and node ports, which another Service could have."""
    spec.setdefault("type", "ClusterIP")
    cluster_ips = spec.get("clusterIPs") or []
    if len(cluster_ips) == 2:
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", False)
        if spec.get("externalTrafficPolicy") == "Local":
            spec.setdefault("healthCheckNodePort", next(ports))
    if spec["type"] == "NodePort":
        for port in spec.get("ports", []):
            port.setdefault("nodePort", next(ports))
