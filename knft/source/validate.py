"""Checks that the types of ``model.objects`` cannot express, such as whether addresses are valid.

A fatal problem makes the object invalid: it is skipped. Other invalid parts are removed, and the object is used.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from knft.model import addresses
from knft.model.annotations import unknown_choices
from knft.model.objects import (
    EndpointPort,
    EndpointSlice,
    KubeObject,
    Node,
    Service,
    ServiceCIDR,
    ServiceSpec,
    SliceEndpoint,
)
from knft.source.formatting import format_value, join_alternatives

FieldProblem = tuple[str, str]
"""A field's path, and what is wrong with it."""

_LONGEST_ADDRESS = 64
_LINK_LOCAL = "a link-local address"
CLUSTER_IP_MISSING = "it is missing; the Service is not served (an API server would assign one)"
SERVICE_NAME_MISSING = "it is missing, so the slice belongs to no Service; ignored"
_SERVICE_NAME = "metadata.labels['kubernetes.io/service-name']"


def fatal_problems(item: KubeObject) -> list[FieldProblem]:
    """Return all problems that make an object invalid."""
    match item:
        case Service() if item.spec.type != "ExternalName":
            return [*_cluster_ip_problems(item.spec), *_port_problems(item.spec)]
        case ServiceCIDR():
            return [
                (f"spec.cidrs[{index}]", problem)
                for index, cidr in enumerate(item.spec.cidrs or ())
                if (problem := _service_cidr_problem(cidr))
            ]
        case _:
            return []


def without_invalid_parts(item: KubeObject) -> tuple[KubeObject, list[FieldProblem]]:
    """Return the object without invalid parts, and the problems of these; most objects are returned as they are."""
    match item:
        case Service():
            return _clean_service(item)
        case EndpointSlice():
            return _clean_slice(item)
        case Node():
            return _clean_node(item)
        case _:
            return item, []


def _cluster_ip_problems(spec: ServiceSpec) -> Iterator[FieldProblem]:
    first, listed, families = spec.cluster_ip or "", spec.cluster_ips or (), spec.ip_families or ()
    if len(set(families)) < len(families):
        yield "spec.ipFamilies", f"{families[0]} is listed twice"
    if listed and any(listed) and not first:
        yield "spec.clusterIP", f"it is missing, but spec.clusterIPs has {format_value(listed[0])}"
    elif listed and (_canonical(listed[0]) or listed[0]) != (_canonical(first) or first):
        yield "spec.clusterIPs[0]", f"it is {format_value(listed[0])}, but spec.clusterIP is {format_value(first)}"
    fields = [(f"spec.clusterIPs[{index}]", text) for index, text in enumerate(listed)] or [("spec.clusterIP", first)]
    for (field, text), family in zip(fields, (*families, *(None,) * len(fields)), strict=False):
        if text not in ("", "None") and (problem := _address_problem(text, family, allowed=_LINK_LOCAL)):
            yield field, problem


def _port_problems(spec: ServiceSpec) -> Iterator[FieldProblem]:
    seen: dict[tuple[str, str], int] = {}
    for index, port in enumerate(spec.ports or ()):
        other = seen.setdefault((port.name, port.protocol), index)
        if other != index:
            problem = (
                f"{format_value(port.name)} is already the name of spec.ports[{other}]"
                if port.name
                else "it is missing"
            )
            advice = (
                ""
                if port.name
                else f", and spec.ports[{other}] has no name either; several ports of one protocol need names"
            )
            yield f"spec.ports[{index}].name", problem + advice


def _service_cidr_problem(cidr: str) -> str:
    parsed = _network(cidr)
    if parsed is None:
        return f"{format_value(cidr)} is not a CIDR"
    if addresses.overlaps_loopback(parsed):
        return f"{format_value(cidr)} contains loopback addresses, so knft would drop packets to them"
    return ""


def _canonical(text: str) -> str | None:
    parsed = addresses.parse_address(text) if len(text) <= _LONGEST_ADDRESS else None
    return parsed[1] if parsed else None


def _network(text: str) -> str | None:
    parsed = addresses.parse_network(text) if len(text) <= _LONGEST_ADDRESS else None
    return parsed[1] if parsed else None


def _address_problem(text: str, family: str | None, allowed: str = "") -> str:
    """Return what is wrong with an address, or ""; the special use ``allowed`` is accepted."""
    parsed = addresses.parse_address(text) if len(text) <= _LONGEST_ADDRESS else None
    if parsed is None:
        zone = ": it has a zone" if "%" in text and ":" in text else ""
        return f"{format_value(text)} is not an IP address" + zone
    if family is not None and parsed[0].value != family:
        return f"{format_value(text)} is not an {family} address"
    use = addresses.special_use(parsed[1])
    return f"{format_value(text)} is {use}" if use and use != allowed else ""


def _without_invalid(
    field: str, texts: tuple[str, ...] | None, check: Callable[[str], str], problems: list[FieldProblem]
) -> tuple[str, ...] | None:
    """Return the valid texts; append the problems of the others to ``problems``."""
    if not texts:
        return texts
    reasons = [check(text) for text in texts]
    if not any(reasons):
        return texts
    problems += [(f"{field}[{index}]", f"{reason}; ignored") for index, reason in enumerate(reasons) if reason]
    return tuple(text for text, why in zip(texts, reasons, strict=True) if not why)


def _cidr_problem(text: str) -> str:
    return "" if _network(text) else f"{format_value(text)} is not a CIDR"


def _clean_service(service: Service) -> tuple[Service, list[FieldProblem]]:
    spec, problems = service.spec, list(_service_warnings(service.spec))
    external = _without_invalid(
        "spec.externalIPs", spec.external_ips, lambda text: _address_problem(text, None), problems
    )
    ranges = _without_invalid(
        "spec.loadBalancerSourceRanges", spec.load_balancer_source_ranges, _cidr_problem, problems
    )
    service = _clean_annotations(_clean_ingress(service, problems), problems)
    if external is not spec.external_ips or ranges is not spec.load_balancer_source_ranges:
        service = replace(service, spec=replace(spec, external_ips=external, load_balancer_source_ranges=ranges))
    if spec.load_balancer_source_ranges and not ranges:
        # Without ranges, all sources would be allowed.
        problems.append(
            ("spec.loadBalancerSourceRanges", "no valid range is left; load balancer addresses are ignored")
        )
        service = replace(service, status=None)
    return service, problems


def _service_warnings(spec: ServiceSpec) -> Iterator[FieldProblem]:
    if spec.type == "ExternalName":
        return
    if not spec.cluster_ip:
        yield "spec.clusterIP", CLUSTER_IP_MISSING
    elif len(spec.cluster_ips or ()) > 1 and not spec.ip_families:
        yield "spec.ipFamilies", f"it is missing, so only spec.clusterIP, {spec.cluster_ip}, is served"


def _clean_ingress(service: Service, problems: list[FieldProblem]) -> Service:
    balancer = service.status.load_balancer if service.status is not None else None
    if service.status is None or balancer is None or not balancer.ingress:
        return service
    reasons = [_address_problem(item.ip, None, allowed=_LINK_LOCAL) if item.ip else "" for item in balancer.ingress]
    if not any(reasons):
        return service
    field = "status.loadBalancer.ingress"
    problems += [(f"{field}[{index}].ip", f"{reason}; ignored") for index, reason in enumerate(reasons) if reason]
    kept = tuple(item for item, why in zip(balancer.ingress, reasons, strict=True) if not why)
    return replace(service, status=replace(service.status, load_balancer=replace(balancer, ingress=kept)))


def _clean_annotations(service: Service, problems: list[FieldProblem]) -> Service:
    annotations = service.metadata.annotations
    if annotations is None or not (unknown := tuple(unknown_choices(annotations))):
        return service
    problems += [
        (
            f"metadata.annotations['{each.annotation}']",
            f"{format_value(each.value)} is not {join_alternatives(each.allowed)}; {each.allowed[0]} is used",
        )
        for each in unknown
    ]
    known = replace(annotations, **dict.fromkeys((each.field for each in unknown), None))
    return replace(service, metadata=replace(service.metadata, annotations=known))


def _clean_slice(endpoint_slice: EndpointSlice) -> tuple[EndpointSlice, list[FieldProblem]]:
    if endpoint_slice.address_type == "FQDN":
        problem = "Service proxies do not serve FQDN endpoints; the slice is ignored"
        return endpoint_slice, [("addressType", problem)]
    warnings = []
    if not endpoint_slice.metadata.proxy_labels.service_name:
        warnings.append((_SERVICE_NAME, SERVICE_NAME_MISSING))
    for index, port in enumerate(endpoint_slice.ports or ()):
        warnings += _port_warnings(f"ports[{index}]", port)
    endpoints = endpoint_slice.endpoints or ()
    if endpoint_slice.address_type == "IPv4" and addresses.are_ordinary_ipv4(
        [endpoint.addresses[0] if endpoint.addresses else "" for endpoint in endpoints]
    ):
        return endpoint_slice, warnings
    reasons = [_endpoint_problem(endpoint, endpoint_slice.address_type) for endpoint in endpoints]
    if not any(reasons):
        return endpoint_slice, warnings
    warnings += [
        (f"endpoints[{index}].addresses{reason[0]}", reason[1]) for index, reason in enumerate(reasons) if reason
    ]
    kept = tuple(endpoint for endpoint, why in zip(endpoints, reasons, strict=True) if not why)
    return replace(endpoint_slice, endpoints=kept), warnings


def _endpoint_problem(endpoint: SliceEndpoint, family: str) -> FieldProblem | None:
    if not endpoint.addresses:
        return "", "it is empty; the endpoint is ignored"
    problem = _address_problem(endpoint.addresses[0], family)
    return ("[0]", f"{problem}; the endpoint is ignored") if problem else None


def _port_warnings(field: str, port: EndpointPort) -> Iterable[FieldProblem]:
    if port.name is None:
        yield f"{field}.name", "it is missing or null; the port is ignored"
    elif port.port is None:
        yield f"{field}.port", "it is missing or null, which means all ports; the port is ignored"
    elif port.port == 0:
        yield f"{field}.port", "it is 0; the port is ignored"


def _clean_node(node: Node) -> tuple[Node, list[FieldProblem]]:
    problems: list[FieldProblem] = []
    spec, status = node.spec, node.status
    if spec is not None:
        cidrs = _without_invalid("spec.podCIDRs", spec.pod_cidrs, _cidr_problem, problems)
        node = node if cidrs is spec.pod_cidrs else replace(node, spec=replace(spec, pod_cidrs=cidrs))
    if status is not None and status.addresses:
        reasons = [
            f"{format_value(item.address)} is not an IP address"
            if item.type in ("InternalIP", "ExternalIP") and _canonical(item.address) is None
            else ""
            for item in status.addresses
        ]
        field = "status.addresses"
        problems += [
            (f"{field}[{index}].address", f"{reason}; ignored") for index, reason in enumerate(reasons) if reason
        ]
        if any(reasons):
            kept = tuple(item for item, why in zip(status.addresses, reasons, strict=True) if not why)
            node = replace(node, status=replace(status, addresses=kept))
    return node, problems
