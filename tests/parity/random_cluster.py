"""Random clusters and their changes: a seed gives a list of clusters, each a small change of the one before.

A ``Cluster`` consists of simple structs, so that ``shrink`` can remove parts of it; ``manifests`` returns its objects
as an API server accepts them.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.support.lab import plan

ZONES = ("zone-a", "zone-b")
PODS = ("local-1", "local-2", "local-3", "remote-1", "remote-2", "node")
"""The hosts that endpoints run on. Other pods are clients only."""
TARGET_PORTS = (8080, 8081)
FIRST_NODE_PORT = 30000
NAMESPACE = "default"
_PORTS: tuple[tuple[str, str, int], ...] = (("http", "TCP", 80), ("dns", "UDP", 53), ("dns-tcp", "TCP", 53))
_RANGES = ("192.0.2.100/32", "192.0.2.0/24", "10.244.0.0/16", "0.0.0.0/0", "192.0.2.11/32", "198.51.100.0/24")
_RANGES_V6 = ("2001:db8:1::100/128", "2001:db8:1::/64", "fd00:10:244::/48", "::/0", "2001:db8:1::11/128")
_EXTERNAL = plan.Subnet("203.0.113", "2001:db8:cb")
_CLUSTER_IPS = plan.Subnet("10.96.0", "fd00:10:96")


class Endpoint(Struct, frozen=True):
    """An endpoint on a host of the lab; ``hints`` names a zone or a node, "" for no hint."""

    host: str
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hint: str = ""
    node_hint: str = ""


class Slice(Struct, frozen=True):
    """An EndpointSlice of a Service; ``target`` is the number of the port, ``ports`` names those that it has."""

    family: str
    target: int
    ports: tuple[str, ...]
    endpoints: tuple[Endpoint, ...] = ()


class Service(Struct, frozen=True):
    """A Service; ``number`` gives its name, addresses and ports, so that no two Services claim the same.

    ``affinity_seconds`` is the timeout of the session affinity, 0 for none.
    """

    number: int
    type: str = "ClusterIP"
    families: tuple[str, ...] = ("IPv4", "IPv6")
    ports: tuple[str, ...] = ("http",)
    slices: tuple[Slice, ...] = ()
    affinity_seconds: int = 0
    internal_policy: str = "Cluster"
    external_policy: str = "Cluster"
    has_external_ips: bool = False
    ingress: str = ""
    ranges: tuple[str, ...] = ()
    allocates_node_ports: bool = True
    is_headless: bool = False
    other_proxy: bool = False

    @property
    def sticky(self) -> bool:
        """Whether the Service has session affinity."""
        return self.affinity_seconds != 0


class Cluster(Struct, frozen=True):
    """All Services, and the zone of the node under test ("" for none)."""

    services: tuple[Service, ...]
    zone: str = "zone-a"


class Settings(Struct, frozen=True):
    """The flags of the proxies: of detection of local traffic, masquerading and NodePort addresses."""

    detect_local: tuple[str, ...] = ()
    masquerade_all: bool = False
    node_port_addresses: str = ""

    @property
    def flags(self) -> list[str]:
        """The flags, which kube-proxy, ``knft run``, ``knft diff`` and ``knft render`` know."""
        return [
            *(self.detect_local or (f"--cluster-cidr={plan.CLUSTER.ipv4},{plan.CLUSTER.ipv6}",)),
            *(("--masquerade-all",) if self.masquerade_all else ()),
            *((f"--nodeport-addresses={self.node_port_addresses}",) if self.node_port_addresses else ()),
        ]


class History(Struct, frozen=True):
    """The settings of the proxies, and clusters in their order."""

    settings: Settings
    clusters: tuple[Cluster, ...]


def random_history(seed: int, changes: int, services: int = 6) -> History:
    """Return the history of a seed: a cluster, and that many changes of it."""
    rng = Random(seed)  # noqa: S311 - reproducible
    clusters = [Cluster(tuple(_service(rng, number) for number in range(1, services + 1)), rng.choice(ZONES))]
    for _ in range(changes):
        clusters.append(_changed(rng, clusters[-1]))
    return History(_settings(rng), tuple(clusters))


def _settings(rng: Random) -> Settings:
    detect_local = (
        (),
        (),
        ("--detect-local-mode=NodeCIDR",),
        ("--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"),
        ("--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=cni"),
    )
    return Settings(
        rng.choice(detect_local),
        rng.random() < 0.2,
        rng.choice(("", "", "192.0.2.0/24,2001:db8:1::/64", "10.244.1.0/24,fd00:10:244:1::/64")),
    )


def _service(rng: Random, number: int) -> Service:
    families = rng.choice((("IPv4", "IPv6"), ("IPv4", "IPv6"), ("IPv6", "IPv4"), ("IPv4",), ("IPv6",)))
    kind = rng.choice(("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"))
    ports = tuple(sorted(rng.sample([name for name, _, _ in _PORTS], rng.randint(1, 2))))
    slices = [_slice(rng, family, ports) for family in families for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    return Service(
        number,
        "ExternalName" if rng.random() < 0.03 else kind,
        families,
        ports,
        tuple(slices),
        affinity_seconds=_affinity_seconds(rng) if rng.random() < 0.25 else 0,
        internal_policy=rng.choice(("Cluster", "Cluster", "Local")),
        external_policy=rng.choice(("Cluster", "Local")),
        has_external_ips=rng.random() < 0.3,
        ingress=rng.choice(("", "VIP", "VIP", "Proxy")),
        ranges=_ranges(rng),
        allocates_node_ports=rng.random() < 0.8,
        is_headless=rng.random() < 0.03,
        other_proxy=rng.random() < 0.03,
    )


def _affinity_seconds(rng: Random) -> int:
    return rng.choice((600, 3600, 10800, 86400))


def _ranges(rng: Random) -> tuple[str, ...]:
    if rng.random() < 0.5:
        return ()
    return tuple(sorted(rng.sample((*_RANGES, *_RANGES_V6), rng.randint(1, 3))))


def _slice(rng: Random, family: str, ports: tuple[str, ...]) -> Slice:
    hosts = rng.sample(PODS, rng.choice((0, 1, 2, 3, 3, 4)))
    zone_hints, node_hints = rng.choice(_ZONE_HINTS), rng.choice(_NODE_HINTS)
    endpoints = tuple(_endpoint(rng, host, zone_hints, node_hints) for host in hosts)
    named = ports if rng.random() < 0.9 else ports[:1]
    return Slice(family, rng.choice(TARGET_PORTS), named, endpoints)


# The shares of the endpoints of a slice that have hints. If one endpoint has none, kube-proxy ignores all of them.
_ZONE_HINTS = (0.0,) * 6 + (1.0,) * 3 + (0.7,)
_NODE_HINTS = (0.0,) * 16 + (1.0,) * 3 + (0.7,)


def _endpoint(rng: Random, host: str, zone_hints: float, node_hints: float) -> Endpoint:
    ready, serving, terminating = rng.choice(
        [(True, True, False)] * 5 + [(False, True, True), (False, False, True), (False, False, False)]
    )
    return Endpoint(
        host,
        ready,
        serving,
        terminating,
        rng.choice(ZONES) if rng.random() < zone_hints else "",
        rng.choice(("node-1", "node-2")) if rng.random() < node_hints else "",
    )


def _changed(rng: Random, cluster: Cluster) -> Cluster:
    """Return a cluster with a few changed Services, perhaps a deleted or created one, and another zone of the node."""
    services = list(cluster.services)
    for _ in range(rng.randint(2, 4)):
        position = rng.randrange(len(services))
        services[position] = _changed_service(rng, services[position])
    if len(services) > 1 and rng.random() < 0.4:
        del services[rng.randrange(len(services))]
    if rng.random() < 0.4:
        # A number that was used before gives a Service with the name and addresses of one that was deleted.
        free = sorted(set(range(1, len(cluster.services) + 3)) - {service.number for service in cluster.services})
        services.append(_service(rng, rng.choice(free)))
    zone = rng.choice((*ZONES, "")) if rng.random() < 0.2 else cluster.zone
    return Cluster(tuple(services), zone)


def _changed_service(rng: Random, service: Service) -> Service:
    fresh = _service(rng, service.number)
    if rng.random() < 0.1:
        return fresh
    changes: dict[str, dict[str, Any]] = {
        "slices": {"slices": tuple(_slice(rng, family, service.ports) for family in service.families)},
        "endpoint": {"slices": _changed_slices(rng, service.slices)},
        "scaled to zero": {"slices": tuple(replace(one, endpoints=()) for one in service.slices)},
        "policies": {"internal_policy": fresh.internal_policy, "external_policy": fresh.external_policy},
        "ranges": {"ranges": fresh.ranges},
        "external": {"has_external_ips": not service.has_external_ips, "ingress": fresh.ingress},
        "type": {"type": fresh.type},
        "affinity": {"affinity_seconds": 0 if service.sticky and rng.random() < 0.5 else _affinity_seconds(rng)},
    }
    return replace(service, **changes[rng.choice((*changes, "slices", "endpoint", "endpoint"))])


def _changed_slices(rng: Random, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
    if not slices:
        return ()
    position = rng.randrange(len(slices))
    changed = _with_changed_endpoint(rng, slices[position])
    return (*slices[:position], changed, *slices[position + 1 :])


def _with_changed_endpoint(rng: Random, one: Slice) -> Slice:
    host = rng.choice(PODS)
    others = tuple(endpoint for endpoint in one.endpoints if endpoint.host != host)
    if rng.random() < 0.4:
        return replace(one, endpoints=others)
    zone_hints = 0.9 if any(endpoint.zone_hint for endpoint in one.endpoints) else 0.0
    node_hints = 0.9 if any(endpoint.node_hint for endpoint in one.endpoints) else 0.0
    return replace(one, endpoints=(*others, _endpoint(rng, host, zone_hints, node_hints)))


def manifests(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the Node, and all Services and EndpointSlices."""
    return [_node(cluster.zone), *(item for service in cluster.services for item in _objects(service))]


def _node(zone: str) -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": address} for address in (plan.NODE.lan.ipv4, plan.NODE.lan.ipv6)]
    cidrs = plan.NODE.pods.cidrs
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": plan.NODE.node_name,
            "labels": {"topology.kubernetes.io/zone": zone} if zone else {},
        },
        "spec": {"podCIDRs": [cidrs.ipv4, cidrs.ipv6], "podCIDR": cidrs.ipv4},
        "status": {"addresses": addresses},
    }


def _objects(service: Service) -> Iterator[dict[str, Any]]:
    name = f"svc-{service.number}"
    labels = {"service.kubernetes.io/service-proxy-name": "other"} if service.other_proxy else {}
    item: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": _spec(service),
    }
    if service.type == "LoadBalancer" and service.ingress:
        ingress = [{"ip": address, "ipMode": service.ingress} for address in ingress_addresses(service)]
        item["status"] = {"loadBalancer": {"ingress": ingress}}
    yield item
    for number, one in enumerate(slices_of(service), 1):
        yield _slice_object(name, number, one, is_headless=_is_headless(service))


def slices_of(service: Service) -> list[Slice]:
    """Return the slices without the endpoints for which kube-proxy's choice is undefined.

    If slices have the same address and port, kube-proxy uses an endpoint that does not terminate. Of two that are alike
    in this, it uses any.
    """
    found: list[Slice] = []
    seen: set[tuple[str, int, str, bool]] = set()
    for one in service.slices:
        keys = {endpoint: (one.family, one.target, endpoint.host, endpoint.terminating) for endpoint in one.endpoints}
        found.append(replace(one, endpoints=tuple(item for item, key in keys.items() if key not in seen)))
        seen.update(keys.values())
    return found


def is_proxied(service: Service) -> bool:
    """Tell whether kube-proxy serves a Service."""
    return not service.other_proxy and service.type != "ExternalName" and not _is_headless(service)


def _is_headless(service: Service) -> bool:
    return service.is_headless and service.type == "ClusterIP"


def _spec(service: Service) -> dict[str, Any]:
    if service.type == "ExternalName":
        return {"type": "ExternalName", "externalName": "example.org"}
    external = has_external_frontends(service)
    spec: dict[str, Any] = {
        "type": service.type,
        "ports": [_port(service, name) for name in service.ports],
        "ipFamilies": list(service.families),
        "ipFamilyPolicy": "RequireDualStack" if len(service.families) == 2 else "SingleStack",
        "internalTrafficPolicy": service.internal_policy,
    }
    if _is_headless(service):
        return spec | {"clusterIP": "None", "clusterIPs": ["None"]}
    spec["clusterIPs"] = [cluster_ip(service, family) for family in service.families]
    spec["clusterIP"] = spec["clusterIPs"][0]
    if service.sticky:
        client_ip = {"timeoutSeconds": service.affinity_seconds}
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": client_ip}}
    if service.has_external_ips:
        spec["externalIPs"] = external_addresses(service)
    if external:
        spec["externalTrafficPolicy"] = service.external_policy
    if service.type == "LoadBalancer":
        spec["allocateLoadBalancerNodePorts"] = service.allocates_node_ports
        spec["loadBalancerSourceRanges"] = list(service.ranges)
        if service.external_policy == "Local":
            spec["healthCheckNodePort"] = health_check_port(service.number)
    return spec


def has_external_frontends(service: Service) -> bool:
    """Tell whether the API server accepts an externalTrafficPolicy."""
    return service.type in ("NodePort", "LoadBalancer") or (service.has_external_ips and service.type == "ClusterIP")


def _port(service: Service, name: str) -> dict[str, Any]:
    _, protocol, number = next(port for port in _PORTS if port[0] == name)
    node_port = node_port_of(service, name)
    given = {"nodePort": node_port} if node_port else {}
    return {"name": name, "protocol": protocol, "port": number, "targetPort": TARGET_PORTS[0], **given}


def port_numbers(service: Service) -> list[tuple[str, str, int]]:
    """Return name, protocol and number of a Service's ports."""
    return [port for port in _PORTS if port[0] in service.ports]


def node_port_of(service: Service, name: str) -> int:
    """Return the NodePort of a port, 0 for none."""
    has_node_ports = service.type == "NodePort" or (service.type == "LoadBalancer" and service.allocates_node_ports)
    names = [port[0] for port in _PORTS]
    return FIRST_NODE_PORT + 10 * service.number + names.index(name) if has_node_ports else 0


def health_check_port(number: int) -> int:
    """Return the healthCheckNodePort of the Service with a number."""
    return 31000 + number


def cluster_ip(service: Service, family: str) -> str:
    """Return the cluster IP of a family."""
    return _of(_CLUSTER_IPS.at(service.number), family)


def external_addresses(service: Service) -> list[str]:
    """Return the external IPs, which have both families whatever the Service's are."""
    found = _EXTERNAL.at(10 + service.number)
    return [found.ipv4, found.ipv6]


def ingress_addresses(service: Service) -> list[str]:
    """Return the addresses of the load balancer, in the Service's families."""
    found = _EXTERNAL.at(50 + service.number)
    return [_of(found, family) for family in service.families]


def _of(addresses: plan.Addresses, family: str) -> str:
    return addresses.ipv4 if family == "IPv4" else addresses.ipv6


def host_addresses(host: str) -> plan.Addresses:
    """Return the addresses of a host that has endpoints."""
    if host == plan.NODE.host:
        return plan.NODE.lan
    prefix, _, number = host.rpartition("-")
    return next(node for node in plan.NODES if node.pod_prefix == prefix).pod_addresses(int(number))


def _node_name(host: str) -> str:
    return plan.REMOTE.node_name if host.startswith("remote") else plan.NODE.node_name


def _slice_object(service: str, number: int, one: Slice, *, is_headless: bool) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    if is_headless:
        labels["service.kubernetes.io/headless"] = ""
    ports = [
        {"name": name, "protocol": protocol, "port": one.target} for name, protocol, _ in _PORTS if name in one.ports
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-{number}", "namespace": NAMESPACE, "labels": labels},
        "addressType": one.family,
        "ports": ports,
        "endpoints": [_endpoint_object(one.family, endpoint) for endpoint in one.endpoints],
    }


def _endpoint_object(family: str, endpoint: Endpoint) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    if endpoint.zone_hint:
        hints["forZones"] = [{"name": endpoint.zone_hint}]
    if endpoint.node_hint:
        hints["forNodes"] = [{"name": endpoint.node_hint}]
    found: dict[str, Any] = {
        "addresses": [_of(host_addresses(endpoint.host), family)],
        "nodeName": _node_name(endpoint.host),
        "conditions": {name: getattr(endpoint, name) for name in ("ready", "serving", "terminating")},
    }
    return found | ({"hints": hints} if hints else {})
