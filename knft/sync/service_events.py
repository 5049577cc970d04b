"""ServiceEvents: which events changed a Service and its endpoints since the last sync, for ``knft history``."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, structs

from knft.model.addresses import canonical_texts
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice

Target = tuple[str, int]
"""The address and the port of an endpoint."""


class Arrival(Struct, frozen=True):
    """How a change arrived: its resource version, and the time in seconds of the monotonic clock."""

    resource_version: str = ""
    received: float = 0.0


class ReceivedEvent(Struct, frozen=True):
    """A changed Service or EndpointSlice; ``received`` is when knft got it, in seconds of the monotonic clock.

    ``resource_version`` is "" if a list or a manifest told of the change. ``trigger_time`` is the time of the slice's
    annotation, "" without it.
    """

    kind: str
    name: NamespacedName
    resource_version: str
    received: float
    is_deleted: bool
    trigger_time: str = ""


class Transition(NamedTuple):
    """An event that changed an endpoint; ``is_gained`` tells whether it made it ready, or added it."""

    event: ReceivedEvent
    is_gained: bool


class EndpointTransitions(Struct):
    """The newest event that changed whether an endpoint is ready, and whether a slice has it."""

    readiness: dict[Target, Transition] = {}
    presence: dict[Target, Transition] = {}

    def merged_with(self, later: "EndpointTransitions") -> "EndpointTransitions":
        """Return both as one: the newest of each endpoint."""
        return EndpointTransitions({**self.readiness, **later.readiness}, {**self.presence, **later.presence})

    def compare(self, event: ReceivedEvent, previous: EndpointSlice | None, current: EndpointSlice | None) -> None:
        """Record the endpoints that an event of a slice changed."""
        before, after = _changed_endpoints(previous, current)
        for target in before.keys() | after.keys():
            is_ready = after.get(target, False)
            if before.get(target, False) != is_ready:
                self.readiness[target] = Transition(event, is_ready)
            if (target in before) != (target in after):
                self.presence[target] = Transition(event, target in after)


class ServiceEvents(Struct):
    """The newest event of a Service, the newest one of its EndpointSlices, and the newest ones of each endpoint.

    ``unexamined`` are the slices before and after ``slice_event`` as long as that is the only one: with a second one
    before the sync, both are compared. So the usual single event costs nothing, and the memory depends on the
    endpoints that changed, not on the number of events.
    """

    service_event: ReceivedEvent | None = None
    slice_event: ReceivedEvent | None = None
    unexamined: tuple[EndpointSlice | None, EndpointSlice | None] | None = None
    examined: EndpointTransitions | None = None

    def record_slice(self, event: ReceivedEvent, previous: EndpointSlice | None, current: EndpointSlice | None) -> None:
        """Record an event of a slice; only for events that no other object refers to."""
        if self.slice_event is None:
            self.unexamined = (previous, current)
        else:
            self.examined = self.transitions()
            self.unexamined = None
            self.examined.compare(event, previous, current)
        self.slice_event = event

    def transitions(self) -> EndpointTransitions:
        """Return the endpoints that the slices' events changed."""
        if self.examined is not None:
            return self.examined
        found = EndpointTransitions()
        if self.slice_event is not None and self.unexamined is not None:
            found.compare(self.slice_event, *self.unexamined)
        return found

    def merged_with(self, later: "ServiceEvents") -> "ServiceEvents":
        """Return both as one: the newest events."""
        service_event = later.service_event or self.service_event
        if self.slice_event is None or later.slice_event is None:
            return structs.replace(later if self.slice_event is None else self, service_event=service_event)
        examined = self.transitions().merged_with(later.transitions())
        return ServiceEvents(service_event, later.slice_event, examined=examined)


def _changed_endpoints(
    previous: EndpointSlice | None, current: EndpointSlice | None
) -> tuple[Mapping[Target, bool], Mapping[Target, bool]]:
    """Return the endpoints that differ between two slices, as they were and are, and whether each is ready."""
    before, after = _readiness(previous), _readiness(current)
    ports_before, ports_after = _port_numbers(previous), _port_numbers(current)
    if ports_before == ports_after:
        changed = before.items() ^ after.items()
        before, after = dict(changed & before.items()), dict(changed & after.items())
    return _targets(before, ports_before), _targets(after, ports_after)


def _readiness(endpoint_slice: EndpointSlice | None) -> dict[str, bool]:
    endpoints = (endpoint_slice.endpoints if endpoint_slice is not None else None) or ()
    return {
        endpoint.addresses[0]: endpoint.conditions is None or endpoint.conditions.ready is not False
        for endpoint in endpoints
        if endpoint.addresses
    }


def _port_numbers(endpoint_slice: EndpointSlice | None) -> frozenset[int]:
    ports = (endpoint_slice.ports if endpoint_slice is not None else None) or ()
    return frozenset(port.port for port in ports if port.port)


def _targets(readiness: Mapping[str, bool], ports: frozenset[int]) -> dict[Target, bool]:
    texts = canonical_texts(list(readiness))
    return {(text, port): ready for text, ready in zip(texts, readiness.values(), strict=True) for port in ports}
