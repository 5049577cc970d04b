"""Selects the objects of Services."""

from collections.abc import Collection, Iterable

from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, KubeObject, ObjectChange, Service


def service_of(item: KubeObject | None) -> NamespacedName | None:
    """Return the Service that an object is or belongs to, None if it concerns all Services."""
    match item:
        case Service():
            return item.key
        case EndpointSlice():
            return NamespacedName(item.metadata.namespace, item.metadata.proxy_labels.service_name or "")
        case _:
            return None


def only_services(changes: Iterable[ObjectChange], services: Collection[NamespacedName]) -> tuple[ObjectChange, ...]:
    """Return the objects of these Services, and those that concern all Services."""
    named = ((change, service_of(change.current)) for change in changes)
    return tuple(change for change, name in named if name is None or name in services)
