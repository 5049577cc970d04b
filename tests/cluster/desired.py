"""What scenarios' objects look like when they are sent to an API server; pure.

Scenarios are written as knft reads them. An API server is told a little more, so that it adds nothing of its own.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, NamedTuple

from tests.support.lab.plan import SERVICES

Key = tuple[str, str, str]
"""Kind, namespace ("" where the kind has none) and name."""

KINDS = ("ServiceCIDR", "Node", "Service", "EndpointSlice")
"""The kinds that knft follows, in the order in which they are made."""
_NAMESPACED = frozenset({"Service", "EndpointSlice"})
FIRST_PORT = 15000
"""Node ports that the API server would choose are chosen from here on, where neither scenarios nor callers have any."""
LAST_PORT = 32767
SCENARIO_SERVICE_CIDR: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "ServiceCIDR",
    "metadata": {"name": "scenarios"},
    "spec": {"cidrs": [SERVICES.ipv4, SERVICES.ipv6]},
}
"""The range of scenarios' cluster IPs; the API server's own is another, because it keeps that for good."""
_READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": None}]}


class DesiredObject(NamedTuple):
    """An object as it is sent; ``status`` goes to where statuses are written.

    ``created`` is the time that it shall have been made at, None for none at all; ``dated`` tells whether that counts.
    """

    item: dict[str, Any]
    status: dict[str, Any] | None = None
    created: str | None = None
    dated: bool = False


def key_of(item: dict[str, Any]) -> Key:
    """Return what tells an object from all others."""
    kind, metadata = item["kind"], item["metadata"]
    return kind, metadata.get("namespace", "default") if kind in _NAMESPACED else "", metadata["name"]


def desired_objects(objects: Sequence[dict[str, Any]], *, with_range: bool = True) -> dict[Key, DesiredObject]:
    """Return what an API server has to hold, in the order of making."""
    ports = count(FIRST_PORT)
    # Ages count where one is given, and then a Service without one is the youngest.
    dated = any("creationTimestamp" in item["metadata"] for item in objects if item["kind"] == "Service")
    found = [SCENARIO_SERVICE_CIDR] if with_range else []
    found += sorted(objects, key=lambda item: KINDS.index(item["kind"]))
    return {key_of(one.item): one for one in (_desired(item, ports, dated=dated) for item in found)}


def _desired(item: dict[str, Any], ports: Iterable[int], *, dated: bool) -> DesiredObject:
    item = deepcopy(item)
    status = item.pop("status", None)
    if item["kind"] in _NAMESPACED:
        item["metadata"].setdefault("namespace", "default")
    if item["kind"] == "ServiceCIDR":
        # The API server's own has that name.
        item["metadata"]["name"] = item["metadata"]["name"].replace("kubernetes", "scenario")
        return DesiredObject(item, _READY)
    if item["kind"] == "Service":
        _complete(item["spec"], iter(ports))
        return DesiredObject(item, status, item["metadata"].pop("creationTimestamp", None), dated=dated)
    return DesiredObject(item, status)


def _complete(spec: dict[str, Any], ports: Any) -> None:
    """Say what the API server would choose: how many families, and node ports, which could be another Service's."""
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
