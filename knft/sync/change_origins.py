"""ChangeOrigins: where the pending changes of Service ports come from, for ``knft history``.

They are what the changed Service ports were before, and the events of the API server or the manifests that changed
them. A sync that fails or postpones Service ports leaves the origins of these to the next one.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, structs

from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import EndpointSlice
from knft.model.service_port import ServicePort

MAX_EVENTS = 16
"""How many events of one Service are kept until a sync; the newest ones decide which endpoints it has."""


class ReceivedEvent(Struct, frozen=True):
    """A changed Service or EndpointSlice; ``received`` is when knft got it, in seconds of the monotonic clock.

    ``resource_version`` is "" if a list or a manifest told of the change. The slices are those of an EndpointSlice.
    """

    kind: str
    name: NamespacedName
    resource_version: str
    received: float
    is_deleted: bool
    previous: EndpointSlice | None = None
    current: EndpointSlice | None = None


class Arrival(Struct, frozen=True):
    """How a change arrived: its resource version, and the time in seconds of the monotonic clock."""

    resource_version: str = ""
    received: float = 0.0


class ChangeOrigins(Struct, frozen=True):
    """The changed Service ports and their endpoints as they were before, and the events of each changed Service."""

    ports: Mapping[ServicePortName, ServicePort | None] = {}
    """The Service ports that changed, as they were; None if they did not exist."""
    endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]] = {}
    """The endpoints that changed, as they were."""
    events: Mapping[NamespacedName, tuple[ReceivedEvent, ...]] = {}

    def merged_with(self, later: "ChangeOrigins") -> "ChangeOrigins":
        """Return both as one: the oldest state before, and the newest events."""
        if not (self.ports or self.endpoints or self.events):
            return later
        events = {
            service: (*self.events.get(service, ()), *later.events.get(service, ()))[-MAX_EVENTS:]
            for service in self.events.keys() | later.events.keys()
        }
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

    def service_ports(self) -> Iterable[ServicePortName]:
        """Return the changed Service ports, sorted."""
        return sorted(self.ports.keys() | self.endpoints.keys())
