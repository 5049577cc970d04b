"""Checks of Services that a change of manifests makes headless."""

from collections.abc import Iterator, Mapping, Sequence

from knft.explain.words import listed, number_text
from knft.lint.checks import Check
from knft.lint.report import Hit, hit
from knft.lint.services import has_rules
from knft.model.described import EndpointSlice, Service
from knft.model.names import NamespacedName
from knft.model.objects import ServicePortSpec


def service_change_hits(
    service: Service, earlier: Service | None, slices: Mapping[NamespacedName, Sequence[EndpointSlice]]
) -> Iterator[Hit]:
    """Yield whether a Service had a cluster IP before a change, and is headless after it."""
    if earlier is None or not has_rules(earlier) or service.spec.cluster_ip != "None":
        return
    ports = _ports_text(service, slices.get(service.key, ()))
    yield hit(Check.BECAME_HEADLESS, service.key, address=earlier.spec.cluster_ip, ports=ports)


def _ports_text(service: Service, slices: Sequence[EndpointSlice]) -> str:
    """Return which ports have other numbers at the pods."""
    numbers = {port: _numbers(port, slices) for port in service.spec.ports or ()}
    if not any(numbers.values()):
        return "the EndpointSlices have none of its ports"
    different = {port: found for port, found in numbers.items() if found and found != [port.port]}
    if not different:
        return "the pods have the same ports"
    pairs = (
        f"{number_text(port.port, port.protocol)} is {listed(number_text(each, port.protocol) for each in found)}"
        for port, found in different.items()
    )
    return f"{listed(pairs)} at the pods"


def _numbers(port: ServicePortSpec, slices: Sequence[EndpointSlice]) -> list[int]:
    """Return the numbers that a Service port has in EndpointSlices."""
    found = {
        each.port
        for item in slices
        for each in item.ports or ()
        if (each.name, each.protocol or "TCP") == (port.name, port.protocol)
    }
    return sorted(number for number in found if number)
