"""What the types of ``model.objects`` cannot say about an object, such as whether its addresses are addresses.

A fault costs the object; what is passed over costs only itself, and the object is used without it.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from knft.model import addresses
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
from knft.source.formatting import format_value

FieldProblem = tuple[str, str]
"""A field's path, and what is wrong with it."""

_LONGEST_ADDRESS = 64
_LINK_LOCAL = "a link-local address"
_SERVICE_NAME = "metadata.labels['kubernetes.io/service-name']"


def fatal_problems(found: KubeObject) -> list[FieldProblem]:
    """Return every fault for which the object has to be left out."""
    match found:
        case Service() if found.spec.type != "ExternalName":
            return [*_cluster_ip_faults(found.spec), *_port_faults(found.spec)]
        case ServiceCIDR():
            return [
                (f"spec.cidrs[{index}]", wrong)
                for index, cidr in enumerate(found.spec.cidrs or ())
                if (wrong := _service_cidr_fault(cidr))
            ]
        case _:
            return []


def without_invalid_parts(found: KubeObject) -> tuple[KubeObject, list[FieldProblem]]:
    """Return the object without what cannot be meant in it, and what that is; most are returned as they are."""
    match found:
        case Service():
            return _tidied_service(found)
        case EndpointSlice():
            return _tidied_slice(found)
        case Node():
            return _tidied_node(found)
        case _:
            return found, []


def _cluster_ip_faults(spec: ServiceSpec) -> Iterator[FieldProblem]:
    first, listed, families = spec.cluster_ip or "", spec.cluster_ips or (), spec.ip_families or ()
    if len(set(families)) < len(families):
        yield "spec.ipFamilies", f"{families[0]} stands there twice"
    if listed and any(listed) and not first:
        yield "spec.clusterIP", f"it is missing, while spec.clusterIPs has {format_value(listed[0])}"
    elif listed and (_canonical(listed[0]) or listed[0]) != (_canonical(first) or first):
        yield "spec.clusterIPs[0]", f"it is {format_value(listed[0])}, while spec.clusterIP is {format_value(first)}"
    fields = [(f"spec.clusterIPs[{index}]", text) for index, text in enumerate(listed)] or [("spec.clusterIP", first)]
    for (field, text), family in zip(fields, (*families, *(None,) * len(fields)), strict=False):
        if text not in ("", "None") and (wrong := _address_fault(text, family, allowed=_LINK_LOCAL)):
            yield field, wrong


def _port_faults(spec: ServiceSpec) -> Iterator[FieldProblem]:
    seen: dict[tuple[str, str], int] = {}
    for index, port in enumerate(spec.ports or ()):
        other = seen.setdefault((port.name, port.protocol), index)
        if other != index:
            wrong = (
                f"{format_value(port.name)} is the name of spec.ports[{other}], too" if port.name else "it is missing"
            )
            needed = "" if port.name else f", and spec.ports[{other}] has none either; ports of one protocol need names"
            yield f"spec.ports[{index}].name", wrong + needed


def _service_cidr_fault(cidr: str) -> str:
    parsed = _network(cidr)
    if parsed is None:
        return f"{format_value(cidr)} is not a CIDR"
    if addresses.is_zero_network(parsed) or addresses.overlaps_loopback(parsed):
        return f"{format_value(cidr)} holds loopback addresses, and packets to unallocated ones are dropped"
    return ""


def _canonical(text: str) -> str | None:
    parsed = addresses.parse_address(text) if len(text) <= _LONGEST_ADDRESS else None
    return parsed[1] if parsed else None


def _network(text: str) -> str | None:
    parsed = addresses.parse_network(text) if len(text) <= _LONGEST_ADDRESS else None
    return parsed[1] if parsed else None


def _address_fault(text: str, family: str | None, allowed: str = "") -> str:
    """Return what is wrong with an address, or ""; the special use ``allowed`` is not."""
    parsed = addresses.parse_address(text) if len(text) <= _LONGEST_ADDRESS else None
    if parsed is None:
        zone = ", for it has a zone" if "%" in text and ":" in text else ""
        return f"{format_value(text)} is not an IP address" + zone
    if family is not None and parsed[0].value != family:
        return f"{format_value(text)} is not an {family} address"
    use = addresses.special_use(parsed[1])
    return f"{format_value(text)} is {use}" if use and use != allowed else ""


def _sift(
    field: str, texts: tuple[str, ...] | None, wrong: Callable[[str], str], found: list[FieldProblem]
) -> tuple[str, ...] | None:
    """Return the texts with nothing ``wrong``; the others are added to ``found``."""
    if not texts:
        return texts
    reasons = [wrong(text) for text in texts]
    if not any(reasons):
        return texts
    found += [(f"{field}[{index}]", f"{why}; it is passed over") for index, why in enumerate(reasons) if why]
    return tuple(text for text, why in zip(texts, reasons, strict=True) if not why)


def _cidr_fault(text: str) -> str:
    return "" if _network(text) else f"{format_value(text)} is not a CIDR"


def _tidied_service(service: Service) -> tuple[Service, list[FieldProblem]]:
    spec, found = service.spec, list(_service_remarks(service.spec))
    external = _sift("spec.externalIPs", spec.external_ips, lambda text: _address_fault(text, None), found)
    ranges = _sift("spec.loadBalancerSourceRanges", spec.load_balancer_source_ranges, _cidr_fault, found)
    service = _tidied_ingress(service, found)
    if external is not spec.external_ips or ranges is not spec.load_balancer_source_ranges:
        service = replace(service, spec=replace(spec, external_ips=external, load_balancer_source_ranges=ranges))
    if spec.load_balancer_source_ranges and not ranges:
        # Nobody was to be let in but a few: that must not become everybody.
        found.append(("spec.loadBalancerSourceRanges", "no range is left; load balancer addresses are passed over"))
        service = replace(service, status=None)
    return service, found


def _service_remarks(spec: ServiceSpec) -> Iterator[FieldProblem]:
    if spec.type == "ExternalName":
        return
    if not spec.cluster_ip:
        yield "spec.clusterIP", "it is missing; an API server would choose one, without one the Service is not served"
    elif len(spec.cluster_ips or ()) > 1 and not spec.ip_families:
        yield "spec.ipFamilies", f"it is missing, so only spec.clusterIP, {spec.cluster_ip}, is served"


def _tidied_ingress(service: Service, found: list[FieldProblem]) -> Service:
    balancer = service.status.load_balancer if service.status is not None else None
    if service.status is None or balancer is None or not balancer.ingress:
        return service
    reasons = [_address_fault(item.ip, None, allowed=_LINK_LOCAL) if item.ip else "" for item in balancer.ingress]
    if not any(reasons):
        return service
    field = "status.loadBalancer.ingress"
    found += [(f"{field}[{index}].ip", f"{why}; it is passed over") for index, why in enumerate(reasons) if why]
    kept = tuple(item for item, why in zip(balancer.ingress, reasons, strict=True) if not why)
    return replace(service, status=replace(service.status, load_balancer=replace(balancer, ingress=kept)))


def _tidied_slice(found: EndpointSlice) -> tuple[EndpointSlice, list[FieldProblem]]:
    if found.address_type == "FQDN":
        said = "FQDN endpoints are not served by a Service proxy; the slice is passed over"
        return found, [("addressType", said)]
    remarks = []
    if not found.metadata.proxy_labels.service_name:
        remarks.append((_SERVICE_NAME, "it is missing, so the slice belongs to no Service; it is passed over"))
    for index, port in enumerate(found.ports or ()):
        remarks += _port_remarks(f"ports[{index}]", port)
    endpoints = found.endpoints or ()
    if found.address_type == "IPv4" and addresses.are_ordinary_ipv4(
        [endpoint.addresses[0] if endpoint.addresses else "" for endpoint in endpoints]
    ):
        return found, remarks
    reasons = [_endpoint_fault(endpoint, found.address_type) for endpoint in endpoints]
    if not any(reasons):
        return found, remarks
    remarks += [(f"endpoints[{index}].addresses{why[0]}", why[1]) for index, why in enumerate(reasons) if why]
    kept = tuple(endpoint for endpoint, why in zip(endpoints, reasons, strict=True) if not why)
    return replace(found, endpoints=kept), remarks


def _endpoint_fault(endpoint: SliceEndpoint, family: str) -> FieldProblem | None:
    if not endpoint.addresses:
        return "", "it is empty; the endpoint is passed over"
    wrong = _address_fault(endpoint.addresses[0], family)
    return ("[0]", f"{wrong}; the endpoint is passed over") if wrong else None


def _port_remarks(field: str, port: EndpointPort) -> Iterable[FieldProblem]:
    if port.name is None:
        yield f"{field}.name", "it is missing or null; the port is passed over"
    elif port.port is None:
        yield f"{field}.port", "it is missing or null, which means all ports; the port is passed over"
    elif port.port == 0:
        yield f"{field}.port", "it is 0; the port is passed over"


def _tidied_node(node: Node) -> tuple[Node, list[FieldProblem]]:
    found: list[FieldProblem] = []
    spec, status = node.spec, node.status
    if spec is not None:
        cidrs = _sift("spec.podCIDRs", spec.pod_cidrs, _cidr_fault, found)
        node = node if cidrs is spec.pod_cidrs else replace(node, spec=replace(spec, pod_cidrs=cidrs))
    if status is not None and status.addresses:
        reasons = [
            f"{format_value(item.address)} is not an IP address"
            if item.type in ("InternalIP", "ExternalIP") and _canonical(item.address) is None
            else ""
            for item in status.addresses
        ]
        field = "status.addresses"
        found += [
            (f"{field}[{index}].address", f"{why}; it is passed over") for index, why in enumerate(reasons) if why
        ]
        if any(reasons):
            kept = tuple(item for item, why in zip(status.addresses, reasons, strict=True) if not why)
            node = replace(node, status=replace(status, addresses=kept))
    return node, found
