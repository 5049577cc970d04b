"""Which event gave a Service port an endpoint, or took it away, if several changed the Service before a sync."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from knft.model.addresses import canonical_texts
from knft.model.objects import EndpointSlice
from knft.sync.change_origins import ReceivedEvent

_Target = tuple[str, int]
_Readiness = Mapping[_Target, bool]
"""Whether an endpoint is ready, for each address and port of a slice."""


class _SliceChange(Struct, frozen=True):
    """An event, and the endpoints of its EndpointSlice before and after it; none if it is a Service."""

    event: ReceivedEvent
    before: _Readiness
    after: _Readiness

    def changes_readiness(self, target: _Target, *, is_gained: bool) -> bool:
        was_ready, is_ready = self.before.get(target, False), self.after.get(target, False)
        return was_ready != is_ready and is_ready == is_gained

    def changes_presence(self, target: _Target, *, is_gained: bool) -> bool:
        return (target in self.before) != (target in self.after) and (target in self.after) == is_gained


class EventFinder:
    """Finds the event that changed an endpoint, among the events of one Service since the last sync."""

    def __init__(self, events: Sequence[ReceivedEvent]) -> None:
        """Take the events, the oldest first."""
        self._events = events
        self._newest_first: Sequence[_SliceChange] | None = None

    def find(self, target: _Target, *, is_gained: bool) -> ReceivedEvent | None:
        """Return the event, None if there was none: the newest one that fits best.

        An endpoint that is terminating loses its readiness first, and new connections with it.
        """
        if len(self._events) <= 1:
            return self._events[0] if self._events else None
        fits: tuple[Callable[[_SliceChange], bool], ...] = (
            lambda change: change.changes_readiness(target, is_gained=is_gained),
            lambda change: change.changes_presence(target, is_gained=is_gained),
            lambda change: change.event.kind == "Service",
            lambda _: True,
        )
        return next(change.event for is_cause in fits for change in self._changes() if is_cause(change))

    def _changes(self) -> Sequence[_SliceChange]:
        if self._newest_first is None:
            self._newest_first = [
                _SliceChange(event, _readiness(event.previous), _readiness(event.current))
                for event in reversed(self._events)
            ]
        return self._newest_first


def _readiness(endpoint_slice: EndpointSlice | None) -> _Readiness:
    endpoints = (endpoint_slice.endpoints if endpoint_slice is not None else None) or ()
    with_address = [endpoint for endpoint in endpoints if endpoint.addresses]
    texts = canonical_texts([endpoint.addresses[0] for endpoint in with_address])
    numbers = {port.port for port in (endpoint_slice.ports if endpoint_slice is not None else None) or () if port.port}
    return {
        (text, number): endpoint.conditions is None or endpoint.conditions.ready is not False
        for text, endpoint in zip(texts, with_address, strict=True)
        for number in numbers
    }
