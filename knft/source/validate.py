"""What the types of ``model.objects`` cannot say about an object: whether its addresses are addresses."""

from collections.abc import Iterator

from knft.model import addresses
from knft.model.objects import EndpointPort, EndpointSlice, KubeObject, Node, Service, ServiceCIDR, ServiceSpec

Fault = tuple[str, str]
"""A field's path, and what is wrong with it."""


def faults(found: KubeObject) -> list[Fault]:
    """Return every fault for which the object has to be left out."""
    match found:
        case Service():
            return list(_service_faults(found.spec))
        case EndpointSlice():
            return list(_slice_faults(found))
        case ServiceCIDR():
            return [
                (f"spec.cidrs[{index}]", f"{cidr!r} is not a CIDR")
                for index, cidr in enumerate(found.spec.cidrs or ())
                if addresses.parse_network(cidr) is None
            ]
        case Node():
            return []


def _service_faults(spec: ServiceSpec) -> Iterator[Fault]:
    if spec.type == "ExternalName":
        return
    if spec.cluster_ip not in (None, "", "None"):
        yield from _address_faults("spec.clusterIP", spec.cluster_ip or "", None)
    for index, text in enumerate(spec.cluster_ips or ()):
        if text != "None":
            families = spec.ip_families or ()
            family = families[index] if index < len(families) else None
            yield from _address_faults(f"spec.clusterIPs[{index}]", text, family)
    seen: set[tuple[str, str]] = set()
    for index, port in enumerate(spec.ports or ()):
        if (port.name, port.protocol) in seen:
            yield f"spec.ports[{index}].name", f"{port.name!r} is the name of another port as well"
        seen.add((port.name, port.protocol))


def _address_faults(field: str, text: str, family: str | None) -> Iterator[Fault]:
    parsed = addresses.parse_address(text)
    if parsed is None:
        yield field, f"{text!r} is not an IP address"
    elif family is not None and parsed[0].value != family:
        yield field, f"{text!r} is not an {family} address"


def _slice_faults(endpoint_slice: EndpointSlice) -> Iterator[Fault]:
    if endpoint_slice.address_type == "FQDN":
        return
    for index, endpoint in enumerate(endpoint_slice.endpoints or ()):
        for text in endpoint.addresses[:1]:
            field = f"endpoints[{index}].addresses[0]"
            yield from _address_faults(field, text, endpoint_slice.address_type)


def remarks(found: KubeObject) -> list[Fault]:
    """Return what is passed over within an object that is otherwise used."""
    match found:
        case Service():
            return list(_service_remarks(found))
        case EndpointSlice():
            return list(_slice_remarks(found))
        case _:
            return []


def _service_remarks(service: Service) -> Iterator[Fault]:
    for index, text in enumerate(service.spec.external_ips or ()):
        if addresses.parse_address(text) is None:
            yield f"spec.externalIPs[{index}]", f"{text!r} is not an IP address; it is passed over"
    for index, text in enumerate(service.spec.load_balancer_source_ranges or ()):
        if addresses.parse_network(text) is None:
            field = f"spec.loadBalancerSourceRanges[{index}]"
            yield field, f"{text!r} is not a CIDR; it is passed over"


def _slice_remarks(endpoint_slice: EndpointSlice) -> Iterator[Fault]:
    if endpoint_slice.address_type == "FQDN":
        yield "addressType", "FQDN endpoints are not served by a Service proxy; the slice is passed over"
        return
    if not endpoint_slice.metadata.known_labels.service_name:
        field = "metadata.labels['kubernetes.io/service-name']"
        yield field, "it is missing, so the slice belongs to no Service"
    for index, port in enumerate(endpoint_slice.ports or ()):
        yield from _port_remarks(f"ports[{index}]", port)
    for index, endpoint in enumerate(endpoint_slice.endpoints or ()):
        if not endpoint.addresses:
            yield f"endpoints[{index}].addresses", "it is empty; the endpoint is passed over"


def _port_remarks(field: str, port: EndpointPort) -> Iterator[Fault]:
    if port.name is None:
        yield f"{field}.name", "it is null; the port is passed over"
    elif port.port is None:
        yield f"{field}.port", "it is null, which means all ports; the port is passed over"
    elif port.port == 0:
        yield f"{field}.port", "it is 0; the port is passed over"
