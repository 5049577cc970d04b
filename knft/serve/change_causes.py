"""Which event gave a Service port an endpoint, or took it away, if several changed the Service before a sync."""

from functools import cached_property

from knft.sync.service_events import EndpointTransitions, ReceivedEvent, ServiceEvents, Target


class EventFinder:
    """Finds the event that changed an endpoint of a Service port, among those of its Service since the last sync."""

    def __init__(self, events: ServiceEvents, *, has_port_changed: bool) -> None:
        """Take the events; ``has_port_changed`` tells whether events of the Service changed this Service port."""
        self._events = events
        self._has_port_changed = has_port_changed

    def find(self, target: Target, *, is_gained: bool) -> ReceivedEvent | None:
        """Return the event, None if there was none: the newest one that fits best.

        An endpoint that is terminating loses its readiness first, and new connections with it.
        """
        if self._events.unexamined is not None and not self._has_port_changed:
            return self._events.slice_event
        for transitions in (self._transitions.readiness, self._transitions.presence):
            found = transitions.get(target)
            if found is not None and found.is_gained == is_gained:
                return found.event
        return self._events.service_event if self._has_port_changed else self._events.slice_event

    @cached_property
    def _transitions(self) -> EndpointTransitions:
        return self._events.transitions()
