"""Extracts the Services, ports and endpoints of one IP family on one node from manifests, as input of models.

It uses none of knft's code that does this, so that models are independent.

It follows docs/behaviour/tracking.md (Services and endpoints), docs/behaviour/endpoints.md (selection of endpoints) and
docs/behaviour/configuration.md#node-addresses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Literal

from msgspec import Struct

Family = Literal[4, 6]
Kind = Literal["cluster IP", "external IP", "VIP", "NodePort"]
Network = IPv4Network | IPv6Network
Manifest = Mapping[str, Any]


def socket_text(address: str, port: int) -> str:
    """Return "ip:port", with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Endpoint(Struct, frozen=True, kw_only=True):
    """An endpoint of a Service port."""

    address: str
    port: int
    is_local: bool
    ready: bool
    serving: bool
    terminating: bool
    zones: frozenset[str]
    nodes: frozenset[str]

    def __str__(self) -> str:
        """Return it as "ip:port"."""
        return socket_text(self.address, self.port)


class ServicePort(Struct, frozen=True, kw_only=True):
    """A port of a Service, with all its endpoints, and those that are selected on all nodes and on this node."""

    service: str
    name: str
    created: str
    protocol: str
    port: int
    node_port: int
    cluster_ip: str
    external_ips: tuple[str, ...]
    vips: tuple[str, ...]
    ranges: tuple[Network, ...]
    affinity_seconds: int
    load_balancing: str
    drain: str
    is_internal_local: bool
    is_external_local: bool
    endpoints: tuple[Endpoint, ...]
    cluster_endpoints: tuple[Endpoint, ...]
    local_endpoints: tuple[Endpoint, ...]

    def __str__(self) -> str:
        """Return "namespace/name:port", without ":" if the port has no name."""
        return f"{self.service}:{self.name}" if self.name else self.service

    @property
    def is_sticky(self) -> bool:
        """Whether it has ClientIP affinity."""
        return self.affinity_seconds > 0

    @property
    def internal(self) -> tuple[Endpoint, ...]:
        """The endpoints of the cluster IP."""
        return self.local_endpoints if self.is_internal_local else self.cluster_endpoints

    @property
    def external(self) -> tuple[Endpoint, ...]:
        """The endpoints of all other frontends, for traffic from outside."""
        return self.local_endpoints if self.is_external_local else self.cluster_endpoints

    def frontends(self) -> Iterator[tuple[Kind, str, int]]:
        """Yield kind, address and port of each frontend; the address of a NodePort is empty."""
        yield "cluster IP", self.cluster_ip, self.port
        yield from (("external IP", address, self.port) for address in self.external_ips)
        yield from (("VIP", address, self.port) for address in self.vips)
        if self.node_port:
            yield "NodePort", "", self.node_port


def service_ports(objects: Sequence[Manifest], node: str, zone: str, family: Family) -> list[ServicePort]:
    """Return the Service ports of all Services that the proxy serves."""
    return [
        _service_port(service, port, cluster_ip, family, _endpoints(objects, service, port, node, family), node, zone)
        for service in objects
        if service["kind"] == "Service" and "service.kubernetes.io/service-proxy-name" not in _labels(service)
        for cluster_ip in _cluster_ips(service["spec"], family)
        for port in service["spec"].get("ports") or ()
    ]


def _cluster_ips(spec: Manifest, family: Family) -> tuple[str, ...]:
    """Return the Service's cluster IPs in this family, none or one."""
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") in (None, "", "None"):
        return ()
    if not spec.get("ipFamilies"):
        return addresses([spec["clusterIP"]], family)
    numbered = zip(spec["ipFamilies"], spec.get("clusterIPs") or (), strict=False)
    return addresses([address for name, address in numbered if name == f"IPv{family}"], family)


def _service_port(  # noqa: PLR0917
    service: Manifest,
    port: Manifest,
    cluster_ip: str,
    family: Family,
    endpoints: Sequence[Endpoint],
    node: str,
    zone: str,
) -> ServicePort:
    spec, annotations = service["spec"], service["metadata"].get("annotations") or {}
    external_ips = addresses(spec.get("externalIPs") or (), family)
    is_accessible = spec.get("type") in ("NodePort", "LoadBalancer") or bool(external_ips)
    cluster_endpoints, local_endpoints = chosen(endpoints, node, zone)
    ingress = (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or ()
    return ServicePort(
        service=f"{_namespace(service)}/{service['metadata']['name']}",
        name=port.get("name") or "",
        created=service["metadata"].get("creationTimestamp") or "",
        protocol=port.get("protocol", "TCP").lower(),
        port=port["port"],
        node_port=port.get("nodePort") or 0,
        cluster_ip=cluster_ip,
        external_ips=external_ips,
        vips=addresses([one.get("ip") or "" for one in ingress if one.get("ipMode") in (None, "VIP")], family),
        ranges=networks(spec.get("loadBalancerSourceRanges") or (), family),
        affinity_seconds=_affinity_seconds(spec),
        load_balancing=annotations.get("knft.dev/load-balancing", "random"),
        drain=annotations.get("knft.dev/drain", "keep"),
        is_internal_local=spec.get("internalTrafficPolicy") == "Local",
        is_external_local=is_accessible and spec.get("externalTrafficPolicy") == "Local",
        endpoints=tuple(endpoints),
        cluster_endpoints=cluster_endpoints,
        local_endpoints=local_endpoints,
    )


def _affinity_seconds(spec: Manifest) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    return ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds") or 10800


def _endpoints(
    objects: Sequence[Manifest], service: Manifest, port: Manifest, node: str, family: Family
) -> list[Endpoint]:
    """Return all endpoints of a Service port, each "ip:port" once (docs/behaviour/tracking.md#endpoint-slices)."""
    wanted = (port.get("name") or "", port.get("protocol", "TCP"))
    found: dict[str, Endpoint] = {}
    for piece in _slices(objects, service, family):
        numbers = [
            one["port"]
            for one in piece.get("ports") or ()
            if one.get("port") and (one.get("name"), one.get("protocol", "TCP")) == wanted
        ]
        for end in (_endpoint(item, number, node) for number in numbers for item in piece.get("endpoints") or ()):
            # That of the slice whose name sorts last, but a terminating one never replaces another.
            if str(end) not in found or not end.terminating:
                found[str(end)] = end
    return [found[key] for key in sorted(found)]


def _slices(objects: Sequence[Manifest], service: Manifest, family: Family) -> Iterator[Manifest]:
    """Yield the slices of a Service, sorted by name."""
    slices = (item for item in objects if item["kind"] == "EndpointSlice" and item["addressType"] == f"IPv{family}")
    for item in sorted(slices, key=lambda item: str(item["metadata"]["name"])):
        labels = _labels(item)
        names = (_namespace(item), labels.get("kubernetes.io/service-name"))
        if "service.kubernetes.io/headless" not in labels and names == (
            _namespace(service),
            service["metadata"]["name"],
        ):
            yield item


def _endpoint(item: Manifest, number: int, node: str) -> Endpoint:
    conditions, hints = item.get("conditions") or {}, item.get("hints") or {}
    return Endpoint(
        address=str(ip_address(_without_leading_zeros(item["addresses"][0]))),
        port=number,
        is_local=bool(node) and item.get("nodeName") == node,
        ready=conditions.get("ready") is not False,
        serving=conditions.get("serving") is not False,
        terminating=conditions.get("terminating") is True,
        zones=frozenset(zone["name"] for zone in hints.get("forZones") or ()),
        nodes=frozenset(one["name"] for one in hints.get("forNodes") or ()),
    )


def chosen(endpoints: Sequence[Endpoint], node: str, zone: str) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return the endpoints selected by topology hints, and those on this node regardless of hints."""
    ready = [end for end in endpoints if end.ready]
    ending = [end for end in endpoints if not end.ready and end.serving and end.terminating]
    here = [end for end in ready if end.is_local] or [end for end in ending if end.is_local]
    return tuple(_hinted(ready, node, zone) or ending), tuple(here)


def _hinted(ready: Sequence[Endpoint], node: str, zone: str) -> Sequence[Endpoint]:
    """Return the endpoints hinted for this node, else for this zone, else all.

    Hints only apply if all ready endpoints have them (docs/behaviour/endpoints.md#topology-hints).
    """
    for_node = [end for end in ready if node in end.nodes]
    if for_node and all(end.nodes for end in ready):
        return for_node
    for_zone = [end for end in ready if zone in end.zones]
    if for_zone and all(end.zones for end in ready):
        return for_zone
    return ready


def node_ips(node: Manifest) -> tuple[str, ...]:
    """Return the Node's addresses: internal ones first, one of each family."""
    listed = (node.get("status") or {}).get("addresses") or ()
    ordered = [one["address"] for kind in ("InternalIP", "ExternalIP") for one in listed if one["type"] == kind]
    families: tuple[Family, ...] = (4, 6)
    return tuple(address for family in families for address in addresses(ordered, family)[:1])


def zone_of(node: Manifest) -> str:
    """Return the Node's zone, or ""."""
    return _labels(node).get("topology.kubernetes.io/zone") or "" if node else ""


def addresses(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the valid addresses of a family, each once."""
    found = (_address(text) for text in texts)
    return tuple(dict.fromkeys(address for address in found if address and ip_address(address).version == family))


def networks(texts: Iterable[str], family: Family) -> tuple[Network, ...]:
    """Return the valid networks of a family."""
    found = (_network(text.strip()) for text in texts)
    return tuple(network for network in found if network and network.version == family)


def within(address: str, nets: Iterable[Network]) -> bool:
    """Tell whether an address lies in one of the networks."""
    return any(ip_address(address) in network for network in nets)


def _address(text: str) -> str | None:
    try:
        return str(ip_address(_without_leading_zeros(text)))
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    address, slash, length = text.partition("/")
    try:
        return ip_network(f"{_without_leading_zeros(address)}/{length}", strict=False) if slash else None
    except ValueError:
        return None


def _without_leading_zeros(text: str) -> str:
    """Return an IPv4 address without leading zeros."""
    return text if ":" in text else ".".join(part.lstrip("0") or "0" for part in text.split("."))


def _labels(item: Manifest) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _namespace(item: Manifest) -> str:
    return item["metadata"].get("namespace") or "default"
