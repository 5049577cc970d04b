"""Generates random clusters of valid objects, and the packets that distinguish their Services.

``clusters`` draws Services with every feature in both families, a Node, and the proxy's configuration. No frontend is
contested and no endpoint is a frontend, because the model does not cover these. ``packets_for`` yields the packets.
"""

from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from tests.interpret.service_model.random_packets import packets_for
from tests.interpret.service_model.service_model import Detection, Settings

__all__ = ["NODE", "Cluster", "clusters", "packets_for"]

NODE, OTHER_NODE = "node-1", "node-2"
ZONE = "topology.kubernetes.io/zone"

Object = dict[str, Any]
Draw = st.DrawFn


class EndpointHost(Struct, frozen=True):
    """A pod or host that can be an endpoint: its IPv4 and IPv6 address, and its node."""

    addresses: tuple[str, str]
    node: str


def _numbered(node: str, ipv4: str, ipv6: str, numbers: range) -> list[EndpointHost]:
    return [EndpointHost((f"{ipv4}.{number}", f"{ipv6}::{number}"), node) for number in numbers]


ENDPOINT_HOSTS = (
    *_numbered(NODE, "10.244.1", "fd00:10:244:1", range(11, 14)),
    *_numbered(OTHER_NODE, "10.244.2", "fd00:10:244:2", range(11, 14)),
    *_numbered(NODE, "192.0.2", "2001:db8:1", range(11, 12)),
    *_numbered(OTHER_NODE, "192.0.2", "2001:db8:1", range(12, 13)),
)
"""Pods of this node and of another node, and both nodes as host-network endpoints."""

NODE_ADDRESSES = ("192.0.2.11", "2001:db8:1::11")
POD_GATEWAYS = ("10.244.1.1", "fd00:10:244:1::1")
SPARE_ADDRESSES = ("203.0.113.190", "2001:db8:cb::190")
SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
POD_CIDRS = ("10.244.0.0/16", "fd00:10:244::/48")
POD_CIDRS_OF_NODE = ("10.244.1.0/24", "fd00:10:244:1::/64")

_CLUSTER_IPS = ("10.96.0.10", "10.96.0.11", "fd00:10:96::10", "fd00:10:96::11")
_EXTERNAL = (
    *(f"203.0.113.{number}" for number in range(1, 5)),
    *(f"2001:db8:cb::{number}" for number in range(1, 5)),
    *SPARE_ADDRESSES,
    *NODE_ADDRESSES,
    *("10.96.0.200", "fd00:10:96::200"),  # in the Service CIDR, but unallocated
    *_CLUSTER_IPS,
)
_RANGES_4 = ("192.0.2.0/24", "192.0.2.11/32", "198.51.100.0/24", "10.244.0.0/16", "10.244.1.11/32", "192.0.2.0/25")
_RANGES_6 = ("2001:db8:1::/64", "2001:db8:1::11/128", "2001:db8:9::/48", "fd00:10:244::/48", "fd00:10:244:1::11/128")
_RANGES = (*_RANGES_4, *_RANGES_6, "0.0.0.0/0", "::/0", " 198.51.100.0/25 ", "203.0.113.0/24", "2001:db8:cb::/64")
_NODEPORT_ADDRESSES = (
    None,
    ("primary",),
    ("all",),
    ("localhost",),
    ("0.0.0.0/0", "::/0"),
    ("192.0.2.0/24",),
    ("2001:db8:1::/64", "2001:db8:cb::/64"),
    ("10.244.1.0/24", "203.0.113.0/24", "fd00:10:244:1::/64"),
    ("127.0.0.0/8", "::1/128", "192.0.2.0/24"),
    ("198.51.100.0/24", "2001:db8:ffff::/64"),
    ("primary", "203.0.113.190/32"),
)
_CONDITIONS: tuple[Object, ...] = (
    {"ready": True, "serving": True, "terminating": False},
    {"ready": True, "serving": True, "terminating": False},
    {"ready": True},
    {},
    {"ready": False, "serving": False, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": True},
    {"ready": True, "serving": True, "terminating": True},  # publishNotReadyAddresses
)
_TERMINATING = {"ready": False, "serving": True, "terminating": True}
_HINTS: tuple[Object, ...] = (
    {},
    {"forZones": [{"name": "zone-a"}]},
    {"forZones": [{"name": "zone-b"}]},
    {"forZones": [{"name": "zone-a"}, {"name": "zone-b"}]},
    {"forNodes": [{"name": NODE}]},
    {"forNodes": [{"name": OTHER_NODE}], "forZones": [{"name": "zone-a"}]},
    {"forNodes": [{"name": NODE}, {"name": OTHER_NODE}], "forZones": [{"name": "zone-b"}]},
)
_DETECTIONS: tuple[tuple[Detection, str], ...] = (
    ("ClusterCIDR", ""),
    ("ClusterCIDR", ""),
    ("ClusterCIDR", ""),
    ("NodeCIDR", ""),
    ("BridgeInterface", "cni0"),
    ("InterfaceNamePrefix", "cn"),
    ("InterfaceNamePrefix", "veth"),
)
_FAMILIES = (("IPv4", "IPv6"), ("IPv4", "IPv6"), ("IPv6", "IPv4"), ("IPv4",), ("IPv6",))


class Cluster(Struct, frozen=True):
    """A cluster's objects, and the configuration of the proxy on one node."""

    objects: list[Object]
    settings: Settings
    node: str = NODE


Taken = set[tuple[str, str, int]]


@st.composite
def clusters(draw: Draw) -> Cluster:
    """Draw one to six Services, their slices, the Node, and the proxy's configuration."""
    services = [_cluster_ip_service(draw, index) for index in range(draw(st.integers(1, 6)))]
    taken: Taken = set()
    for service in services:
        taken |= _frontends(service, service["spec"]["clusterIPs"])
    for service in services:
        _add_external_addresses(draw, service, taken)
    slices = [item for service in services for item in _slices(draw, service)]
    rest = [
        _node(draw),
        *draw(st.sampled_from(([], [_service_cidr(SERVICE_CIDRS)], [_service_cidr(SERVICE_CIDRS[:1])]))),
    ]
    return Cluster(draw(st.permutations([*services, *slices, *rest])), draw(_settings()))


_LOAD_BALANCING = {(0, "shop"): "source-hash", (0, "default"): "maglev"}
"""The annotation ``knft.dev/load-balancing`` of the Services with these indexes and namespaces."""


def _cluster_ip_service(draw: Draw, index: int) -> Object:
    """Draw a Service of type ClusterIP."""
    families = list(draw(st.sampled_from(_FAMILIES)))
    cluster_ips = [f"10.96.0.{10 + index}" if name == "IPv4" else f"fd00:10:96::{10 + index}" for name in families]
    spec: Object = {
        "type": "ClusterIP",
        "clusterIP": cluster_ips[0],
        "clusterIPs": cluster_ips,
        "ipFamilies": families,
        "ipFamilyPolicy": "RequireDualStack" if len(families) == 2 else "SingleStack",
        "internalTrafficPolicy": draw(st.sampled_from(("Cluster", "Cluster", "Local"))),
        "ports": _ports(draw),
        "sessionAffinity": "None",
    }
    if draw(st.integers(0, 2)) == 0:
        seconds = draw(st.sampled_from((1, 30, 10800, 86400)))
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}
    metadata: dict[str, Any] = {"name": f"service-{index}", "namespace": draw(st.sampled_from(("default", "shop")))}
    # Not drawn, so that the clusters of the pinned seeds stay.
    if index % 2:
        metadata["annotations"] = {"knft.dev/drain": "reset"}
    load_balancing = _LOAD_BALANCING.get((index, metadata["namespace"]))
    if load_balancing:
        metadata["annotations"] = {"knft.dev/load-balancing": load_balancing}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}


def _ports(draw: Draw) -> list[Object]:
    """Draw ports with distinct numbers and protocols; several ports have names."""
    protocol, number = st.sampled_from(("TCP", "TCP", "UDP", "SCTP")), st.sampled_from((80, 81, 53))
    keys = draw(st.lists(st.tuples(protocol, number), min_size=1, max_size=3, unique=True))
    names = ("http", "dns", "more") if len(keys) > 1 else draw(st.sampled_from((("",), ("http",))))
    return [
        ({"name": name} if name else {}) | {"protocol": protocol, "port": port, "targetPort": 8080}
        for name, (protocol, port) in zip(names, keys, strict=False)
    ]


def _frontends(service: Object, addresses: list[str]) -> Taken:
    return {(address, port["protocol"], port["port"]) for address in addresses for port in service["spec"]["ports"]}


def _add_external_addresses(draw: Draw, service: Object, taken: Taken) -> None:
    """Draw the Service's type and external addresses that are free for its ports; some are load balancer IPs too."""
    spec = service["spec"]
    free = [address for address in _EXTERNAL if not _frontends(service, [address]) & taken]
    # Without this, few external addresses would be another Service's cluster IP, with another port.
    cluster_ips = [address for address in free if address in _CLUSTER_IPS]
    some = st.lists(
        st.sampled_from(cluster_ips if cluster_ips and draw(st.integers(0, 4)) == 0 else free), max_size=3, unique=True
    )
    spec["type"] = draw(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer")))
    if draw(st.booleans()) and free:
        spec["externalIPs"] = draw(some)
        taken |= _frontends(service, spec["externalIPs"])
    if spec["type"] == "LoadBalancer":
        is_twice = spec.get("externalIPs") and draw(st.integers(0, 2)) == 0
        _add_load_balancer(draw, service, spec["externalIPs"] if is_twice else draw(some) if free else [])
        taken |= _frontends(service, [one["ip"] for one in service["status"]["loadBalancer"]["ingress"] if "ip" in one])
    if spec["type"] != "ClusterIP" and spec.get("allocateLoadBalancerNodePorts", True):
        _assign_node_ports(service)
    if spec["type"] != "ClusterIP" or spec.get("externalIPs"):
        spec["externalTrafficPolicy"] = draw(st.sampled_from(("Cluster", "Local")))
    if spec["type"] == "LoadBalancer" and spec["externalTrafficPolicy"] == "Local":
        spec["healthCheckNodePort"] = 31000 + int(service["metadata"]["name"].rpartition("-")[2])


def _add_load_balancer(draw: Draw, service: Object, addresses: list[str]) -> None:
    modes = st.sampled_from(({}, {"ipMode": "VIP"}, {"ipMode": "VIP"}, {"ipMode": "Proxy"}))
    ingress = [{"ip": address} | draw(modes) for address in addresses]
    service["status"]["loadBalancer"]["ingress"] = [
        *ingress,
        *draw(st.sampled_from(([], [{"hostname": "lb.example"}]))),
    ]
    spec = service["spec"]
    spec["allocateLoadBalancerNodePorts"] = draw(st.sampled_from((True, True, False)))
    if draw(st.booleans()):
        spec["loadBalancerSourceRanges"] = draw(st.lists(st.sampled_from(_RANGES), min_size=1, max_size=3, unique=True))


def _assign_node_ports(service: Object) -> None:
    """Assign NodePorts: ports of different protocols share a number."""
    base = 30000 + 10 * int(service["metadata"]["name"].rpartition("-")[2])
    given: dict[str, int] = {}
    for port in service["spec"]["ports"]:
        given[port["protocol"]] = given.get(port["protocol"], -1) + 1
        port["nodePort"] = base + given[port["protocol"]]


def _slices(draw: Draw, service: Object) -> list[Object]:
    """Draw a Service's slices: none, or up to two of each family, possibly with common endpoints."""
    if draw(st.integers(0, 6)) == 0:
        return []
    hosts = draw(st.sampled_from((ENDPOINT_HOSTS, ENDPOINT_HOSTS, ENDPOINT_HOSTS[:3], ENDPOINT_HOSTS[3:6])))
    is_hinted = draw(st.booleans())
    chosen = draw(st.lists(st.sampled_from(hosts), min_size=1, max_size=6, unique=True))
    conditions = {peer: draw(st.sampled_from(_CONDITIONS)) for peer in chosen}
    hints = {peer: draw(st.sampled_from(_HINTS[1:] if is_hinted else _HINTS[:1] * 3 + _HINTS[1:])) for peer in chosen}
    return [
        _slice(
            draw,
            service,
            family,
            count,
            [_endpoint(draw, peer, family, conditions[peer], hints[peer]) for peer in members],
        )
        for family in service["spec"]["ipFamilies"]
        for count in range(draw(st.sampled_from((1, 1, 2))))
        for members in [chosen[draw(st.integers(0, 2)) :] if count else chosen]
    ]


def _slice(draw: Draw, service: Object, family: str, count: int, endpoints: list[Object]) -> Object:
    named = [{"name": port.get("name", ""), "protocol": port["protocol"]} for port in service["spec"]["ports"]]
    if count:  # a slice that lacks a port or has another port number
        named = named[draw(st.integers(0, 1)) :]
    ports = [port | {"port": draw(st.sampled_from((8080, 8080, 8081)))} for port in named]
    name = service["metadata"]["name"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{family.lower()}-{count}",
            "namespace": service["metadata"]["namespace"],
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family,
        "ports": ports,
        "endpoints": endpoints,
    }


def _endpoint(draw: Draw, host: EndpointHost, family: str, conditions: Object, hints: Object) -> Object:
    """Draw an endpoint; a ready one can be terminating in another slice, which has no effect."""
    is_live = conditions.get("terminating") is not True
    drawn_conditions = _TERMINATING if is_live and draw(st.integers(0, 7)) == 7 else conditions
    endpoint = {"addresses": [host.addresses[family == "IPv6"]], "nodeName": host.node, "conditions": drawn_conditions}
    return endpoint | ({"hints": hints} if hints else {})


def _node(draw: Draw) -> Object:
    addresses = draw(st.sampled_from((NODE_ADDRESSES, NODE_ADDRESSES, NODE_ADDRESSES[:1], NODE_ADDRESSES[1:])))
    zone = draw(st.sampled_from(("zone-a", "zone-a", "zone-b", "zone-c", None)))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {ZONE: zone} if zone else {}},
        "spec": {"podCIDR": POD_CIDRS_OF_NODE[0], "podCIDRs": list(POD_CIDRS_OF_NODE)},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def _service_cidr(cidrs: tuple[str, ...]) -> Object:
    name = {"name": "kubernetes"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": name,
        "spec": {"cidrs": list(cidrs)},
    }


@st.composite
def _settings(draw: Draw) -> Settings:
    spare = draw(st.sampled_from((SPARE_ADDRESSES, ())))
    mode, interface = draw(st.sampled_from(_DETECTIONS))
    return Settings(
        addresses=(*NODE_ADDRESSES, *POD_GATEWAYS, *spare),
        node_ips=draw(st.sampled_from(((), (), NODE_ADDRESSES, POD_GATEWAYS))),
        nodeport_addresses=draw(st.sampled_from(_NODEPORT_ADDRESSES)),
        service_cidrs=draw(st.sampled_from((SERVICE_CIDRS, SERVICE_CIDRS[:1], ()))),
        masquerade_all=draw(st.integers(0, 4)) == 0,
        detect_local=mode,
        cluster_cidrs=draw(st.sampled_from((POD_CIDRS, POD_CIDRS, POD_CIDRS[:1], ()))) if mode == "ClusterCIDR" else (),
        interface=interface,
    )
