"""ChangeOrigins: where the pending changes of Service ports come from, for ``knft history``.

They are what the changed Service ports were before, and the events of the API server or the manifests that changed
them. A sync that fails or postpones Service ports leaves the origins of these to the next one.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct, structs

from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.service_port import ServicePort
from knft.sync.service_events import ServiceEvents


class ChangeOrigins(Struct, frozen=True):
    """The changed Service ports and their endpoints as they were before, and the events of each changed Service."""

    ports: Mapping[ServicePortName, ServicePort | None] = {}
    """The Service ports that changed, as they were; None if they did not exist."""
    endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]] = {}
    """The endpoints that changed, as they were."""
    events: Mapping[NamespacedName, ServiceEvents] = {}

    def merged_with(self, later: "ChangeOrigins") -> "ChangeOrigins":
        """Return both as one: the oldest state before, and the newest events."""
        if not (self.ports or self.endpoints or self.events):
            return later
        of_both = {
            service: events.merged_with(later.events[service])
            for service, events in self.events.items()
            if service in later.events
        }
        events = {**self.events, **later.events, **of_both}
        return ChangeOrigins({**later.ports, **self.ports}, {**later.endpoints, **self.endpoints}, events)

    def split(self, waiting: Collection[ServicePortName]) -> "tuple[ChangeOrigins, ChangeOrigins]":
        """Return the origins of the changes that are in force, and those of the Service ports that are ``waiting``.

        Both have the events of a Service of which only some ports wait.
        """
        if not waiting:
            return self, ChangeOrigins()
        services = {name.service for name in waiting}
        later = ChangeOrigins(
            {name: port for name, port in self.ports.items() if name in waiting},
            {name: endpoints for name, endpoints in self.endpoints.items() if name in waiting},
            {service: events for service, events in self.events.items() if service in services},
        )
        in_force = structs.replace(
            self,
            ports={name: port for name, port in self.ports.items() if name not in waiting},
            endpoints={name: endpoints for name, endpoints in self.endpoints.items() if name not in waiting},
        )
        return in_force, later

    def service_ports(self) -> list[ServicePortName]:
        """Return the changed Service ports, first those whose endpoints changed."""
        return list({**self.endpoints, **self.ports})
