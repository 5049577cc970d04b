"""Expansion of a Service into its ServicePorts in one family (docs/behaviour/tracking.md#service-ports)."""

from knft.families import Family
from knft.model import addresses
from knft.model.annotations import DRAIN_KEEP, DRAIN_RESET, RANDOM
from knft.model.names import ServicePortName
from knft.model.objects import Service, ServicePortSpec, ServiceSpec
from knft.model.service_port import ServicePort
from knft.track.size_limits import frontends_error

DEFAULT_AFFINITY_SECONDS = 10800
"""The API server's default for ClientIP affinity; manifests may omit it."""

ServicePorts = dict[ServicePortName, ServicePort]


def expand_service(service: Service | None, family: Family) -> ServicePorts | None:
    """Return the ServicePorts of ``service`` in ``family``, or None if it has no cluster IP there.

    An empty dictionary means a Service without ports, and differs from None. A Service with too many frontends has no
    ports either.
    """
    if service is None or service.spec.type == "ExternalName":
        return None
    cluster_ip = _cluster_ip(service.spec, family)
    if cluster_ip is None:
        return None
    if frontends_error(service):
        return {}
    namespace, name = service.metadata.namespace, service.metadata.name
    return {
        ServicePortName(namespace, name, port.name, port.protocol): _service_port(service, port, cluster_ip, family)
        for port in service.spec.ports or ()
    }


def _cluster_ip(spec: ServiceSpec, family: Family) -> str | None:
    if not spec.cluster_ip or spec.cluster_ip == "None":
        return None
    index = 0
    candidates: tuple[str, ...] = (spec.cluster_ip,)
    if spec.ip_families:
        family_name = family.value
        if family_name not in spec.ip_families:
            return None
        index = spec.ip_families.index(family_name)
        candidates = spec.cluster_ips or candidates
    parsed = addresses.parse_address(candidates[index]) if index < len(candidates) else None
    return parsed[1] if parsed is not None and parsed[0] is family else None


def _service_port(service: Service, port: ServicePortSpec, cluster_ip: str, family: Family) -> ServicePort:
    spec = service.spec
    external_ips = addresses.of_family(spec.external_ips, family) if spec.external_ips else ()
    may_have_external_policy = spec.type in ("LoadBalancer", "NodePort") or bool(external_ips)
    external_local = may_have_external_policy and spec.external_traffic_policy == "Local"
    checks_health = spec.type == "LoadBalancer" and spec.external_traffic_policy == "Local"
    return ServicePort(
        cluster_ip=cluster_ip,
        port=port.port,
        protocol=port.protocol,
        node_port=port.node_port or 0,
        external_ips=external_ips,
        load_balancer_vips=_load_balancer_vips(service, family),
        load_balancer_source_ranges=_source_ranges(spec, family),
        affinity_seconds=_affinity_seconds(spec),
        health_check_node_port=(spec.health_check_node_port or 0) if checks_health else 0,
        internal_policy_local=spec.internal_traffic_policy == "Local",
        external_policy_local=external_local,
        creation_timestamp=service.metadata.creation_timestamp or "",
        resets_connections=port.protocol == "TCP" and _drain(service) == DRAIN_RESET,
        load_balancing=_load_balancing(service),
    )


def _drain(service: Service) -> str:
    annotations = service.metadata.annotations
    return (annotations.drain if annotations is not None else None) or DRAIN_KEEP


def _load_balancing(service: Service) -> str:
    annotations = service.metadata.annotations
    return (annotations.load_balancing if annotations is not None else None) or RANDOM


def _load_balancer_vips(service: Service, family: Family) -> tuple[str, ...]:
    if service.status is None or service.status.load_balancer is None:
        return ()
    ingresses = service.status.load_balancer.ingress or ()
    vips = (ingress.ip for ingress in ingresses if ingress.ip and ingress.ip_mode != "Proxy")
    return addresses.of_family(vips, family)


def _source_ranges(spec: ServiceSpec, family: Family) -> tuple[str, ...]:
    """Return the ranges of ``family``, () if one of them contains all addresses: it restricts no client."""
    if not spec.load_balancer_source_ranges:
        return ()
    ranges = addresses.networks_of_family(spec.load_balancer_source_ranges, family)
    return () if any(map(addresses.is_zero_network, ranges)) else ranges


def _affinity_seconds(spec: ServiceSpec) -> int:
    if spec.session_affinity != "ClientIP":
        return 0
    config = spec.session_affinity_config
    if config is None or config.client_ip is None:
        return DEFAULT_AFFINITY_SECONDS
    return config.client_ip.timeout_seconds or DEFAULT_AFFINITY_SECONDS
