"""Services of the benchmark as the decoded objects that knft's trackers receive."""

import itertools
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import Any

import msgspec

from knft.model.objects import EndpointSlice, ObjectChange, Service
from tests.bench.changes import Step
from tests.bench.cluster import NAMESPACE, ServiceSpec, endpoint_address, is_local

# The EndpointSlice controller's default.
_PER_SLICE = 100
_IPV6_PREFIX = 0xFD00 << 112


def first_changes(services: Iterable[ServiceSpec]) -> Iterator[ObjectChange]:
    """Yield the changes that add all Services."""
    for service in services:
        yield from changes(((None, service),))


def changes(step: Step) -> Iterator[ObjectChange]:
    """Yield the changes of a step, as a watch would report them."""
    for before, after in step:
        if before is None:
            yield ObjectChange(None, _service(after))
        old, new = _slices_of(before), _slices_of(after)
        for index, (was, now) in enumerate(itertools.zip_longest(old, new)):
            if was != now:
                for family in _families(after):
                    yield ObjectChange(_slice(after, index, was, family), _slice(after, index, now, family))


def _slices_of(service: ServiceSpec | None) -> list[tuple[int, ...]]:
    if service is None:
        return []
    # itertools.batched exists from Python 3.12 on.
    return [service.endpoints[start : start + _PER_SLICE] for start in range(0, len(service.endpoints), _PER_SLICE)]


def _service(service: ServiceSpec) -> Service:
    spec: dict[str, Any] = {
        "clusterIP": service.cluster_ip,
        "clusterIPs": _in_families(service, service.cluster_ip),
        "ipFamilies": _families(service),
        "externalIPs": _in_families(service, *service.external_ips),
        "ports": [{"name": port.name, "port": port.number, "protocol": "TCP"} for port in service.ports],
    }
    status: dict[str, Any] = {}
    if service.affinity_seconds:
        config = {"clientIP": {"timeoutSeconds": service.affinity_seconds}}
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}
    if service.ranges:
        spec |= {"type": "LoadBalancer", "loadBalancerSourceRanges": _in_families(service, *service.source_ranges)}
        status = {"loadBalancer": {"ingress": [{"ip": vip} for vip in _in_families(service, *service.vips)]}}
    metadata: dict[str, Any] = {"name": service.name, "namespace": NAMESPACE}
    if service.load_balancing:
        metadata["annotations"] = {"knft.dev/load-balancing": service.load_balancing}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Service)


def _families(service: ServiceSpec) -> list[str]:
    return ["IPv4", "IPv6"] if service.is_dual_stack else ["IPv4"]


def _in_families(service: ServiceSpec, *networks: str) -> list[str]:
    """Return IPv4 addresses or networks as they are, for a dual-stack Service followed by those of IPv6."""
    return [_of_family(network, family) for family in _families(service) for network in networks]


def _of_family(network: str, family: str) -> str:
    if family == "IPv4":
        return network
    ipv4 = IPv4Network(network)
    ipv6 = IPv6Network((_IPV6_PREFIX + int(ipv4.network_address), 96 + ipv4.prefixlen))
    return str(ipv6) if "/" in network else str(ipv6.network_address)


def _slice(service: ServiceSpec, index: int, endpoints: tuple[int, ...] | None, family: str) -> EndpointSlice | None:
    if endpoints is None:
        return None
    labels = {"kubernetes.io/service-name": service.name}
    manifest = {
        "metadata": {"name": f"{service.name}-{family.lower()}-{index}", "namespace": NAMESPACE, "labels": labels},
        "addressType": family,
        "ports": [{"name": port.name, "port": port.target, "protocol": "TCP"} for port in service.ports],
        "endpoints": [
            {
                "addresses": [_of_family(endpoint_address(number), family)],
                "nodeName": "node-1" if is_local(number) else f"node-{number % 1000 + 2}",
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            for number in endpoints
        ],
    }
    return msgspec.convert(manifest, EndpointSlice)
