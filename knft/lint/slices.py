"""Checks of EndpointSlices: those that no Service uses, and those that mirror an Endpoints object."""

from collections.abc import Iterator, Mapping

from knft.explain.missing import similar_services
from knft.lint.checks import Check
from knft.lint.report import Hit, hit
from knft.lint.services import has_rules
from knft.model.described import EndpointSlice, Labels, Service
from knft.model.names import NamespacedName

_MIRRORING = "endpointslicemirroring-controller.k8s.io"


def slice_hits(item: EndpointSlice, services: Mapping[NamespacedName, Service]) -> Iterator[Hit]:
    """Yield what is wrong with an EndpointSlice."""
    labels, what = item.metadata.labels or Labels(), f"EndpointSlice {item.key}"
    if not labels.service_name:
        yield hit(Check.SLICE_WITHOUT_LABEL, what)
        return
    name = NamespacedName(item.metadata.namespace, labels.service_name)
    service = services.get(name)
    if service is None:
        near = similar_services(name, services)
        similar = f"; did you mean {' or '.join(near)}?" if near else ""
        yield hit(Check.SLICE_WITHOUT_SERVICE, what, name=name.name, similar=similar)
        return
    if labels.headless is not None and has_rules(service):
        yield hit(Check.HEADLESS_SLICE, name, slice=item.metadata.name)
    if labels.managed_by == _MIRRORING and has_rules(service):
        yield hit(Check.MIRRORED_ENDPOINTS, name, slice=item.metadata.name)
