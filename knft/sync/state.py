"""ServiceState: one family's Services, endpoints and node, and their changes since the last sync.

Any thread may pass objects in; ``drain`` and ``plan`` belong to the sync thread.
"""

import threading
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from msgspec import Struct, structs

from knft.decide.frontends import FrontendClaims, LosingClaim
from knft.decide.plan import plan_service_port
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.node import NodeView
from knft.model.objects import EndpointSlice, Service
from knft.model.plan import Frontend, ServicePlan
from knft.model.service_port import ServicePort
from knft.sync.change_origins import ChangeOrigins
from knft.sync.service_events import Arrival, ReceivedEvent, ServiceEvents
from knft.track.endpoints import EndpointsChangeTracker, EndpointsMap, TriggerTimes
from knft.track.services import ServiceChangeTracker, ServicePortMap

MAX_TRIGGER_TIMES = 16
"""How many trigger times of a Service are kept while syncs fail; the first ones measure the longest delay."""


class PendingChanges(Struct, frozen=True):
    """The Service ports to plan again, and the new NodeView (None: unchanged)."""

    service_ports: frozenset[ServicePortName]
    node: NodeView | None
    trigger_times: TriggerTimes
    conntrack_cleanup_required: bool
    origins: ChangeOrigins = ChangeOrigins()

    def merged_with(self, later: "PendingChanges") -> "PendingChanges":
        """Return both as one; of a Service's trigger times, only the first are kept."""
        services = self.trigger_times.keys() | later.trigger_times.keys()
        times = {
            name: (*self.trigger_times.get(name, ()), *later.trigger_times.get(name, ()))[:MAX_TRIGGER_TIMES]
            for name in services
        }
        return PendingChanges(
            self.service_ports | later.service_ports,
            later.node or self.node,
            times,
            self.conntrack_cleanup_required or later.conntrack_cleanup_required,
            self.origins.merged_with(later.origins),
        )

    def split(self, waiting: Collection[ServicePortName]) -> "tuple[PendingChanges, PendingChanges | None]":
        """Return the changes that are in force, and those of the Service ports that are ``waiting``.

        Conntrack entries are deleted after both. The trigger times of a Service stay with its waiting ports.
        """
        if not waiting:
            return self, None
        services = {name.service for name in waiting}
        in_force = {name: times for name, times in self.trigger_times.items() if name not in services}
        later = {name: times for name, times in self.trigger_times.items() if name in services}
        origins, origins_later = self.origins.split(waiting)
        ports_in_force = self.service_ports.difference(waiting)
        return (
            structs.replace(self, service_ports=ports_in_force, trigger_times=in_force, origins=origins),
            structs.replace(
                self, service_ports=frozenset(waiting), node=None, trigger_times=later, origins=origins_later
            ),
        )


class TrackerCounts(Struct, frozen=True):
    """Counts of one family's trackers.

    ``service_changes`` and ``endpoint_changes`` are all changes since the start. ``services_pending`` is the number of
    Services that wait for a sync; ``endpoint_changes_pending`` is the number of EndpointSlice changes that do.
    """

    service_changes: int
    services_pending: int
    endpoint_changes: int
    endpoint_changes_pending: int


class ServiceState:
    """The change trackers of one family, and the merged state."""

    def __init__(self, family: Family, node_name: str, start_time: datetime, *, records_origins: bool = False) -> None:
        """Trigger times before ``start_time``, which is in UTC, are ignored.

        With ``records_origins``, ``drain`` returns where changes come from, except the first time.
        """
        self._records_origins = records_origins
        self._is_recording = False
        """Whether origins are recorded: not before the first ``drain``, at which all objects are new."""
        self._events: dict[NamespacedName, ServiceEvents] = {}
        """The events since the last ``drain``, if origins are recorded."""
        self._lock = threading.Lock()
        self._service_tracker = ServiceChangeTracker(family)
        self._endpoints_tracker = EndpointsChangeTracker(family, node_name, start_time)
        self._services = ServicePortMap()
        self._endpoints = EndpointsMap()
        self._frontends = FrontendClaims()
        self._next_node: NodeView | None = None
        self._pending_claims: set[ServicePortName] = set()
        """Service ports whose claims to frontends are not updated yet."""
        self._affected_by_claims: set[ServicePortName] = set()
        """Service ports that updated claims affect, and that ``drain`` has not returned yet."""
        self._too_large: dict[NamespacedName, str] = {}
        self._drained: PendingChanges | None = None
        """Changes taken from the trackers; kept so that an exception in ``drain`` does not lose them."""
        self.node = NodeView(family, node_name)

    def handle_service(
        self,
        previous: Service | None,
        current: Service | None,
        arrival: Arrival = Arrival(),  # noqa: B008 - immutable
    ) -> bool:
        """Record a changed Service; return whether a sync is due: if a change of any Service is pending."""
        changed = current or previous
        with self._lock:
            if changed is None or not self._is_recording:
                return self._service_tracker.record_service(previous, current)
            earlier = self._service_tracker.pending_change(changed.key)
            due = self._service_tracker.record_service(previous, current)
            if self._service_tracker.pending_change(changed.key) != earlier:
                self._events.setdefault(changed.key, ServiceEvents()).service_event = ReceivedEvent(
                    "Service", changed.key, arrival.resource_version, arrival.received, is_deleted=current is None
                )
            return due

    def handle_slice(
        self,
        previous: EndpointSlice | None,
        current: EndpointSlice | None,
        arrival: Arrival = Arrival(),  # noqa: B008 - immutable
    ) -> bool:
        """Record a changed EndpointSlice; return whether a sync is due: if this change has an effect."""
        with self._lock:
            due = False
            if previous is not None and (current is None or _belongs_elsewhere(previous, current)):
                due = self._endpoints_tracker.record_slice(previous, remove=True)
                if due:
                    self._record_slice_event(previous, previous, None, arrival)
                previous = None
            if current is not None and self._endpoints_tracker.record_slice(current, remove=False):
                due = True
                self._record_slice_event(current, previous, current, arrival)
            return due

    def _record_slice_event(
        self,
        changed: EndpointSlice,
        previous: EndpointSlice | None,
        current: EndpointSlice | None,
        arrival: Arrival,
    ) -> None:
        if not self._is_recording:
            return
        service = NamespacedName(changed.metadata.namespace, changed.metadata.proxy_labels.service_name or "")
        annotations = current.metadata.annotations if current is not None else None
        event = ReceivedEvent(
            "EndpointSlice",
            changed.key,
            arrival.resource_version,
            arrival.received,
            is_deleted=current is None,
            trigger_time=(annotations.trigger_time if annotations is not None else None) or "",
        )
        events = self._events.get(service)
        if events is None:
            events = self._events[service] = ServiceEvents()
        events.record_slice(event, previous, current)

    def handle_node(self, node: NodeView) -> bool:
        """Record a new NodeView; return whether a sync is due."""
        with self._lock:
            if node == (self._next_node or self.node):
                return False
            self._next_node = node
            return True

    @property
    def latest_node(self) -> NodeView:
        """The NodeView of the next sync; from any thread."""
        return self._next_node or self.node

    def has_node_ports(self) -> bool:
        """Tell whether any Service port has a NodePort, changes that are pending included; from any thread."""
        with self._lock:
            return self._services.node_port_count > 0 or self._service_tracker.has_pending_node_ports()

    def slices(self, service: NamespacedName) -> tuple[EndpointSlice, ...]:
        """Return the slices of a Service, with the pending changes applied; from any thread, without a lock."""
        return self._endpoints_tracker.slices(service)

    def services_with_slices(self) -> tuple[NamespacedName, ...]:
        """Return the Services that have slices, pending ones included; from any thread, without a lock.

        The order changes only when ``slice_removals`` does; new Services are the last ones.
        """
        return self._endpoints_tracker.services_with_slices()

    def slice_removals(self) -> int:
        """Return how many Services have lost their last slice, since the start; from any thread."""
        return self._endpoints_tracker.removals

    def node_names_of_endpoints(self) -> frozenset[str]:
        """Return the nodes of all endpoints, those of pending changes included; iterates over all endpoints."""
        with self._lock:
            return self._endpoints_tracker.node_names()

    def drain(self) -> PendingChanges:
        """Merge the trackers' pending changes, and return the Service ports to plan again."""
        with self._lock:
            former_ports = self._services.update(self._service_tracker)
            endpoints = self._endpoints.update(self._endpoints_tracker)
            origins = self._take_origins(former_ports, endpoints.former)
            too_large = {**self._endpoints_tracker.too_large, **self._service_tracker.too_large}
            previous, node = self.node, self._next_node
            if node is not None:
                self.node, self._next_node = node, None
        changed = {*former_ports, *endpoints.former}
        if node is not None and _plans_differ(previous, node):
            changed.update(self._services)
        if too_large.keys() != self._too_large.keys():
            affected = too_large.keys() ^ self._too_large.keys()
            changed.update(name for name in self._services if name.service in affected)
        self._too_large = too_large
        drained = PendingChanges(
            frozenset(changed), node, endpoints.trigger_times, endpoints.conntrack_cleanup_required, origins
        )
        # Kept in case of an exception below: the trackers no longer have these changes.
        self._drained = drained if self._drained is None else self._drained.merged_with(drained)
        self._pending_claims.update(former_ports)
        for name in sorted(self._pending_claims):
            self._affected_by_claims |= self._frontends.claim(name, self._services.ports.get(name))
            self._pending_claims.discard(name)
        # A set that has become empty keeps the size of the first sync, and each iteration looks at all of it.
        self._pending_claims = set()
        result = structs.replace(self._drained, service_ports=self._drained.service_ports | self._affected_by_claims)
        self._drained, self._affected_by_claims = None, set()
        return result

    def _take_origins(
        self,
        former_ports: Mapping[ServicePortName, ServicePort | None],
        former_endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]],
    ) -> ChangeOrigins:
        """Return where the changes come from; nothing the first time, when all objects are new."""
        events, self._events = self._events, {}
        if not self._is_recording:
            self._is_recording = self._records_origins
            return ChangeOrigins()
        return ChangeOrigins(former_ports, former_endpoints, events)

    def service_ports(self) -> Iterator[ServicePortName]:
        """Iterate over the names of all Service ports."""
        return iter(self._services)

    def has_service_port(self, name: ServicePortName) -> bool:
        """Whether there is a Service port of that name."""
        return name in self._services.ports

    def service_port(self, name: ServicePortName) -> ServicePort | None:
        """Return one Service port, or None if it does not exist."""
        return self._services.ports.get(name)

    def frontends(self, name: ServicePortName) -> tuple[Frontend, ...]:
        """Return the frontends that one Service port owns; none if it does not exist."""
        return self._frontends.owned_by(name) if name in self._services.ports else ()

    def is_sticky(self, name: ServicePortName) -> bool:
        """Whether there is a Service port of that name with session affinity."""
        port = self._services.ports.get(name)
        return port is not None and port.affinity_seconds > 0

    def affinity_timeouts(self) -> set[int]:
        """Return the affinity timeouts of all Service ports, in seconds; 0 stands for no session affinity."""
        return {port.affinity_seconds for port in self._services.ports.values()}

    def endpoints(self, name: ServicePortName) -> tuple[Endpoint, ...]:
        """Return all endpoints of one Service port, ready or not, sorted by key."""
        return self._endpoints.endpoints.get(name, ())

    def plan(self, name: ServicePortName) -> ServicePlan | None:
        """Return the plan for one Service port; None if it does not exist, or if its Service is too large."""
        port = self._services.ports.get(name)
        if port is None or (self._too_large and name.service in self._too_large):
            return None
        return plan_service_port(name, port, self.endpoints(name), self._frontends.owned_by(name), self.node)

    def too_large(self) -> dict[NamespacedName, str]:
        """Return the Services that are left out because they are too large, and why each is."""
        return dict(self._too_large)

    def service_port_names(self) -> tuple[ServicePortName, ...]:
        """Return the names of all Service ports as of the last sync; from any thread."""
        return tuple(self._services.ports)  # in one step of the interpreter

    def endpoint_count(self) -> int:
        """Return how many endpoints all Service ports have together, ready or not; from any thread."""
        return sum(map(len, tuple(self._endpoints.endpoints.values())))

    def service_port_count(self) -> int:
        """Return how many Service ports there are."""
        return len(self._services)

    def local_ready_endpoints(self, service: NamespacedName) -> int:
        """Return how many distinct addresses of a Service's endpoints are on this node and ready, over all ports."""
        return self._endpoints_tracker.local_ready_endpoints(service)

    def tracker_counts(self) -> TrackerCounts:
        """Return the trackers' counts; from any thread."""
        services, endpoints = self._service_tracker, self._endpoints_tracker
        return TrackerCounts(
            services.changes_total, services.pending, endpoints.changes_total, endpoints.changes_pending
        )

    def losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return the claims to frontends that another Service owns."""
        return self._frontends.losing_claims()

    def losing_claim_count(self) -> int:
        """Return how many claims are to frontends that another Service owns."""
        return self._frontends.losing_count

    def take_newly_losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return the claims to frontends that another Service owns, without those of earlier calls."""
        return self._frontends.take_newly_losing_claims()

    def take_ended_losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return the claims of ``take_newly_losing_claims`` that no longer lose, without those of earlier calls."""
        return self._frontends.take_ended_losing_claims()


def _plans_differ(before: NodeView, after: NodeView) -> bool:
    """Tell whether the change of the node may affect plans: hints depend on the zone, source ranges on the address."""
    return (before.zone, before.node_ip) != (after.zone, after.node_ip)


def _belongs_elsewhere(previous: EndpointSlice, current: EndpointSlice) -> bool:
    """Tell whether a slice now belongs to another Service or family, and must be removed from the old one."""
    before, after = previous.metadata.proxy_labels, current.metadata.proxy_labels
    return (before.service_name, previous.address_type) != (after.service_name, current.address_type)
