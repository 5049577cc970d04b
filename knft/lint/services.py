"""Checks of the fields of one Service."""

from collections.abc import Iterator
from typing import Any

from knft.explain.unserved import ingresses
from knft.explain.words import listed
from knft.families import Family
from knft.lint.checks import Check
from knft.lint.report import Hit, hit
from knft.model import addresses
from knft.model.annotations import MAGLEV, SOURCE_HASH
from knft.model.described import Annotations, Service
from knft.track.expand import expand_service
from knft.track.size_limits import frontends_error

_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_TOLERATE_UNREADY = "service.alpha.kubernetes.io/tolerate-unready-endpoints"


def service_hits(service: Service) -> Iterator[Hit]:
    """Yield what is wrong with a Service's own fields."""
    yield from _unserved(service)
    yield from _ignored(service)
    yield from _families(service)
    yield from _load_balancer(service)
    yield from _deprecated(service)
    yield from _annotations(service)


def has_rules(service: Service) -> bool:
    """Tell whether a Service may have rules: it has a cluster IP, and no other proxy serves it."""
    is_other = service.metadata.proxy_labels.proxy_name is not None or service.spec.type == "ExternalName"
    return not is_other and bool(service.spec.cluster_ip) and service.spec.cluster_ip != "None"


def _unserved(service: Service) -> Iterator[Hit]:
    spec, name = service.spec, service.key
    proxy = service.metadata.proxy_labels.proxy_name
    if proxy is not None:
        yield hit(Check.OTHER_PROXY, name, proxy=proxy)
    elif spec.type != "ExternalName" and not spec.cluster_ip:
        yield hit(Check.NO_CLUSTER_IP, name)
    elif has_rules(service):
        if not spec.ports:
            yield hit(Check.SERVICE_WITHOUT_PORTS, name)
        if error := frontends_error(service):
            yield hit(Check.TOO_MANY_FRONTENDS, name, error=error.removesuffix("; split the Service"))


def _ignored(service: Service) -> Iterator[Hit]:
    """Yield the fields that the API server's warnings call ignored."""
    spec = service.spec
    external = spec.type == "ExternalName"
    headless = not external and spec.cluster_ip == "None"
    if external or headless:
        reason = "the Service is of type ExternalName" if external else "the Service is headless"
        remedy = "use another type" if external else "give the Service a cluster IP"
        fields = {
            "spec.externalIPs": spec.external_ips,
            "spec.loadBalancerIP": spec.load_balancer_ip,
            "spec.sessionAffinity": spec.session_affinity == "ClientIP",
            "spec.internalTrafficPolicy: Local": spec.internal_traffic_policy == "Local",
            "spec.externalTrafficPolicy: Local": spec.external_traffic_policy == "Local",
        }
        for field in (field for field, value in fields.items() if value):
            yield hit(Check.IGNORED_FIELD, service.key, field=field, reason=reason, remedy=remedy)
    ranges, listed_ips = spec.load_balancer_source_ranges, ingresses(service)
    if ranges and (listed_ips or spec.type != "LoadBalancer") and not _vips(service):
        reason = "the Service has no load balancer IP that knft translates"
        remedy = "restrict clients at the load balancer"
        yield hit(Check.IGNORED_FIELD, service.key, field="spec.loadBalancerSourceRanges", reason=reason, remedy=remedy)
    if not external and spec.external_name:
        reason, remedy = "the Service is not of type ExternalName", "set this type"
        yield hit(Check.IGNORED_FIELD, service.key, field="spec.externalName", reason=reason, remedy=remedy)


def _families(service: Service) -> Iterator[Hit]:
    if not has_rules(service):
        return
    spec, name = service.spec, service.key
    served = [family for family in Family if expand_service(service, family) is not None]
    for family in (family for family in Family if family not in served):
        if family.value in (spec.ip_families or ()):
            yield hit(Check.FAMILY_WITHOUT_CLUSTER_IP, name, family=family.value)
        for kind, texts in (("external IP", spec.external_ips or ()), ("load balancer IP", _vips(service))):
            if found := addresses.of_family(texts, family):
                yield hit(Check.ADDRESS_OF_OTHER_FAMILY, name, family=family.value, kind=kind, addresses=listed(found))


def _vips(service: Service) -> list[str]:
    return [each.ip for each in ingresses(service) if each.ip and each.ip_mode != "Proxy"]


def _load_balancer(service: Service) -> Iterator[Hit]:
    spec = service.spec
    if spec.type == "LoadBalancer" and has_rules(service) and not ingresses(service):
        yield hit(Check.LOAD_BALANCER_WITHOUT_ADDRESS, service.key, others=_other_frontends(service) or "nothing")
    others = _other_frontends(service)
    ranges = spec.load_balancer_source_ranges
    if ranges and others and has_rules(service):
        yield hit(Check.SOURCE_RANGES_BYPASSED, service.key, others=others)


def _other_frontends(service: Service) -> str:
    """Return the frontends for clients outside the cluster that are no load balancer IPs."""
    node_ports = [str(port.node_port) for port in service.spec.ports or () if port.node_port]
    external = [text.strip() for text in service.spec.external_ips or ()]
    parts = [("NodePort", node_ports), ("external IP", external)]
    return listed(f"{kind} {listed(texts)}" for kind, texts in parts if texts)


def _deprecated(service: Service) -> Iterator[Hit]:
    spec, name = service.spec, service.key
    if spec.external_ips and has_rules(service):
        yield hit(Check.EXTERNAL_IPS, name, addresses=listed(text.strip() for text in spec.external_ips))
    if spec.load_balancer_ip:
        ips = [each.ip for each in ingresses(service) if each.ip]
        yield hit(Check.LOAD_BALANCER_IP, name, status=f", which are {listed(ips)}" if ips else ", which has none")
    if spec.topology_keys:
        yield hit(Check.TOPOLOGY_KEYS, name)
    if spec.traffic_distribution == "PreferClose":
        yield hit(Check.PREFER_CLOSE, name)


def _annotations(service: Service) -> Iterator[Hit]:
    found = service.metadata.annotations or Annotations()
    listed_annotations: tuple[tuple[Any, str, str, str], ...] = (
        (
            found.topology_aware_hints,
            _TOPOLOGY_HINTS,
            f"is deprecated since Kubernetes 1.27 in favour of {_TOPOLOGY_MODE}",
            "spec.trafficDistribution",
        ),
        (
            found.topology_mode,
            _TOPOLOGY_MODE,
            "makes the EndpointSlice controller ignore spec.trafficDistribution",
            "spec.trafficDistribution",
        ),
        (
            found.tolerate_unready,
            _TOLERATE_UNREADY,
            "was removed: the EndpointSlice controller no longer reads it",
            "spec.publishNotReadyAddresses",
        ),
    )
    is_hashed = found.load_balancing in (MAGLEV, SOURCE_HASH)
    if is_hashed and service.spec.session_affinity == "ClientIP" and has_rules(service):
        yield hit(Check.AFFINITY_WITH_HASHING, service.key, value=found.load_balancing)
    for value, annotation, state, instead in listed_annotations:
        if value:
            yield hit(Check.DEPRECATED_ANNOTATION, service.key, annotation=annotation, state=state, instead=instead)
