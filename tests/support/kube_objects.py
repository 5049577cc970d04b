"""Builders of Kubernetes objects and endpoints for tests; omitted fields have ordinary values."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from knft.model.annotations import Annotations
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.objects import (
    EndpointConditions,
    EndpointHints,
    EndpointPort,
    EndpointSlice,
    Labels,
    LoadBalancerIngress,
    LoadBalancerStatus,
    NamedHint,
    ObjectMeta,
    Service,
    ServicePortSpec,
    ServiceSpec,
    ServiceStatus,
    SliceEndpoint,
)
from knft.protocols import Protocol

NODE = "node-1"
OTHER_NODE = "node-2"

without_deadline = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Disables Hypothesis' deadline and its check for slow data, because a machine may be slow."""


def parametrize_cases(cases: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Run a test once for each case; its key is the id of the test."""
    return pytest.mark.parametrize("case", list(cases.values()), ids=list(cases))


def port_name(port: str = "http", protocol: Protocol = "TCP", *, service: str = "web") -> ServicePortName:
    """Return the name of a port of a Service in namespace ``default``."""
    return ServicePortName("default", service, port, protocol)


def service_port(
    port: int = 80, name: str = "http", protocol: Protocol = "TCP", *, node_port: int | None = None
) -> ServicePortSpec:
    """Return an entry of ``spec.ports``."""
    return ServicePortSpec(port=port, name=name, protocol=protocol, node_port=node_port)


def ingress(ip: str | None, mode: Any = None) -> LoadBalancerIngress:
    """Return an entry of ``status.loadBalancer.ingress``."""
    return LoadBalancerIngress(ip, mode)


def service(
    name: str = "web",
    *,
    namespace: str = "default",
    ingresses: Iterable[LoadBalancerIngress] = (),
    created: str | None = None,
    labels: Labels | None = None,
    annotations: Annotations | None = None,
    **spec: Any,
) -> Service:
    """Return a Service; ``spec`` are fields of its spec, by default cluster IP 10.96.0.1 and port http, 80."""
    return Service(
        ObjectMeta(name, namespace, labels, annotations, created),
        ServiceSpec(**{"cluster_ip": "10.96.0.1", "ports": (service_port(),), **spec}),
        ServiceStatus(LoadBalancerStatus(tuple(ingresses))),
    )


def slice_port(name: str | None = "http", port: int | None = 8080, protocol: Protocol | None = "TCP") -> EndpointPort:
    """Return an entry of a slice's ``ports``."""
    return EndpointPort(name, port, protocol)


def endpoint(
    *addresses: str,
    ready: bool | None = None,
    serving: bool | None = None,
    terminating: bool | None = None,
    node: str | None = None,
    zones: Iterable[str] | None = None,
    nodes: Iterable[str] | None = None,
) -> SliceEndpoint:
    """Return an entry of a slice's ``endpoints``; None leaves a condition or a list of hints out."""
    return SliceEndpoint(
        addresses,
        EndpointConditions(ready, serving, terminating),
        node,
        EndpointHints(_hints(zones), _hints(nodes)),
    )


def _hints(names: Iterable[str] | None) -> tuple[NamedHint, ...] | None:
    return None if names is None else tuple(NamedHint(name) for name in names)


def endpoint_slice(
    name: str = "web-1",
    *endpoints: SliceEndpoint | str,
    service: str | None = "web",
    family: Any = "IPv4",
    ports: Iterable[EndpointPort] | None = (slice_port(),),
    trigger: str | None = None,
) -> EndpointSlice:
    """Return a slice of a Service in namespace ``default``; a plain address is a ready endpoint elsewhere."""
    labels, annotations = Labels(service_name=service), Annotations(trigger)
    return EndpointSlice(
        ObjectMeta(name, "default", labels, annotations),
        family,
        tuple(endpoint(item) if isinstance(item, str) else item for item in endpoints),
        None if ports is None else tuple(ports),
    )


def tracked_endpoint(address: str, port: int = 8080, **fields: Any) -> Endpoint:
    """Return an endpoint as the trackers hand it on."""
    return Endpoint.at(address, port, **fields)


def endpoints(text: str) -> tuple[Endpoint, ...]:
    """Return endpoints in a short notation, such as ``".3 a LR, .4 b c @node-1 ST"``.

    The words are the last octet, zone hints, node hints after ``@``, and the conditions that are true: L(ocal),
    R(eady), S(erving), T(erminating). ``".3 a LR"`` is 10.0.0.3 in hints for zone-a, local and ready.
    """
    return tuple(_endpoint(*item.split()) for item in text.split(",") if item.strip())


def _endpoint(octet: str, *words: str) -> Endpoint:
    flags = "".join(word for word in words if word.isupper())
    return tracked_endpoint(
        f"10.0.0{octet}",
        80,
        is_local="L" in flags,
        ready="R" in flags,
        serving="S" in flags,
        terminating="T" in flags,
        zone_hints=frozenset(f"zone-{word}" for word in words if len(word) == 1 and word.islower()),
        node_hints=frozenset(word[1:] for word in words if word.startswith("@")),
    )
