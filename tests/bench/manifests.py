"""Services of the benchmark as the decoded objects that knft's trackers receive."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from knft.model.objects import EndpointSlice, ObjectChange, Service
from tests.bench.changes import Step
from tests.bench.cluster import NAMESPACE, PORT, PORT_NAME, TARGET_PORT, ServiceSpec, endpoint_address, is_local

# The EndpointSlice controller's default.
_PER_SLICE = 100


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
                yield ObjectChange(_slice(after, index, was), _slice(after, index, now))


def _slices_of(service: ServiceSpec | None) -> list[tuple[int, ...]]:
    if service is None:
        return []
    # itertools.batched exists from Python 3.12 on.
    return [service.endpoints[start : start + _PER_SLICE] for start in range(0, len(service.endpoints), _PER_SLICE)]


def _service(service: ServiceSpec) -> Service:
    spec: dict[str, Any] = {
        "clusterIP": service.cluster_ip,
        "clusterIPs": [service.cluster_ip],
        "ipFamilies": ["IPv4"],
        "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP"}],
    }
    status: dict[str, Any] = {}
    if service.affinity_seconds:
        config = {"clientIP": {"timeoutSeconds": service.affinity_seconds}}
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}
    if service.ranges:
        spec |= {"type": "LoadBalancer", "loadBalancerSourceRanges": service.source_ranges}
        status = {"loadBalancer": {"ingress": [{"ip": service.vip}]}}
    metadata = {"name": service.name, "namespace": NAMESPACE}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Service)


def _slice(service: ServiceSpec, index: int, endpoints: tuple[int, ...] | None) -> EndpointSlice | None:
    if endpoints is None:
        return None
    labels = {"kubernetes.io/service-name": service.name}
    manifest = {
        "metadata": {"name": f"{service.name}-{index}", "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": PORT_NAME, "port": TARGET_PORT, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [endpoint_address(number)],
                "nodeName": "node-1" if is_local(number) else f"node-{number % 1000 + 2}",
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            for number in endpoints
        ],
    }
    return msgspec.convert(manifest, EndpointSlice)
