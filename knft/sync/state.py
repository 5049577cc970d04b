"""ServiceState: what one family knows of Services, endpoints and the node, and what of it is new since the last sync.

Objects come in from any thread; ``check_out`` and ``plan`` belong to the thread that syncs.
"""

import threading
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct, structs

from knft.decide.frontends import FrontendLedger, Lost
from knft.decide.plan import plan_service_port
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.node import NodeView
from knft.model.objects import EndpointSlice, Service
from knft.model.plan import ServicePlan
from knft.model.service_port import ServicePort
from knft.track.endpoints import EndpointsChangeTracker, EndpointsMap, TriggerTimes
from knft.track.services import ServiceChangeTracker, ServicePortMap

MOST_TRIGGER_TIMES = 16
"""So many of a Service's trigger times are kept while syncs fail: the first ones say how long that has been."""


class Work(Struct, frozen=True):
    """What is new: the Service ports to plan again, and the node as it is now (None: as before)."""

    service_ports: frozenset[ServicePortName]
    node: NodeView | None
    trigger_times: TriggerTimes
    conntrack_cleanup_required: bool

    def followed_by(self, later: "Work") -> "Work":
        """Return both, as if they had been checked out at once; of the times only the first ones."""
        services = self.trigger_times.keys() | later.trigger_times.keys()
        times = {
            name: (*self.trigger_times.get(name, ()), *later.trigger_times.get(name, ()))[:MOST_TRIGGER_TIMES]
            for name in services
        }
        return Work(
            self.service_ports | later.service_ports,
            later.node or self.node,
            times,
            self.conntrack_cleanup_required or later.conntrack_cleanup_required,
        )


class Tracked(Struct, frozen=True):
    """How many changes one family's trackers were told of, and how many of them wait for a sync."""

    service_changes: int
    services_pending: int
    endpoint_changes: int
    slices_pending: int


class ServiceState:
    """The trackers of one family, and what they have merged."""

    def __init__(self, family: Family, node_name: str, start_time: datetime) -> None:
        """``start_time`` is now, in UTC."""
        self._lock = threading.Lock()
        self._service_tracker = ServiceChangeTracker(family)
        self._endpoints_tracker = EndpointsChangeTracker(family, node_name, start_time)
        self._services = ServicePortMap()
        self._endpoints = EndpointsMap()
        self._frontends = FrontendLedger()
        self._next_node: NodeView | None = None
        self._unclaimed: set[ServicePortName] = set()
        """Those whose claims to frontends are not made yet."""
        self._affected: set[ServicePortName] = set()
        """Those whom claims that were made affect, not returned yet."""
        self._merged: Work | None = None
        """What was taken from the trackers, not returned yet."""
        self.node = NodeView(family, node_name)

    def handle_service(self, previous: Service | None, current: Service | None) -> bool:
        """Note a changed Service; return whether a sync is due."""
        with self._lock:
            return self._service_tracker.update(previous, current)

    def handle_slice(self, previous: EndpointSlice | None, current: EndpointSlice | None) -> bool:
        """Note a changed EndpointSlice; return whether a sync is due."""
        with self._lock:
            due = False
            if previous is not None and (current is None or _moved(previous, current)):
                due = self._endpoints_tracker.endpoint_slice_update(previous, remove=True)
            if current is not None:
                due |= self._endpoints_tracker.endpoint_slice_update(current, remove=False)
            return due

    def handle_node(self, node: NodeView) -> bool:
        """Note what the node looks like now; return whether a sync is due."""
        with self._lock:
            if node == (self._next_node or self.node):
                return False
            self._next_node = node
            return True

    def check_out(self) -> Work:
        """Merge what the trackers have pending, and return what has to be planned again."""
        with self._lock:
            changed_services = self._services.update(self._service_tracker)
            endpoints = self._endpoints.update(self._endpoints_tracker)
            previous, node = self.node, self._next_node
            if node is not None:
                self.node, self._next_node = node, None
        dirty = set(changed_services | endpoints.changed_ports)
        if node is not None and _plans_differ(previous, node):
            dirty.update(self._services)
        work = Work(frozenset(dirty), node, endpoints.trigger_times, endpoints.conntrack_cleanup_required)
        # Kept until all is done: what the trackers have handed out they do not hand out again.
        self._merged = work if self._merged is None else self._merged.followed_by(work)
        self._unclaimed |= changed_services
        for name in sorted(self._unclaimed):
            self._affected |= self._frontends.claim(name, self._services.get(name))
            self._unclaimed.discard(name)
        done = structs.replace(self._merged, service_ports=self._merged.service_ports | self._affected)
        self._merged, self._affected = None, set()
        return done

    def service_ports(self) -> Iterator[ServicePortName]:
        """Iterate over the names of all Service ports."""
        return iter(self._services)

    def has(self, name: ServicePortName) -> bool:
        """Whether there is a Service port of that name."""
        return name in self._services

    def service_port(self, name: ServicePortName) -> ServicePort | None:
        """Return one Service port, or None where it is gone."""
        return self._services.get(name)

    def endpoints(self, name: ServicePortName) -> tuple[Endpoint, ...]:
        """Return all endpoints of one Service port, in whatever condition, sorted by key."""
        return self._endpoints.get(name, ())

    def plan(self, name: ServicePortName) -> ServicePlan | None:
        """Return the plan for one Service port, or None where it is gone."""
        port = self._services.get(name)
        if port is None:
            return None
        return plan_service_port(name, port, self.endpoints(name), self._frontends.owned(name), self.node)

    def service_port_count(self) -> int:
        """Return how many Service ports there are."""
        return len(self._services)

    def local_ready_endpoints(self, service: NamespacedName) -> int:
        """Return how many distinct addresses of a Service are on this node and ready, over all its ports (A.4)."""
        return self._endpoints_tracker.local_ready_endpoints(service)

    def tracked(self) -> Tracked:
        """Return what the trackers have counted; from any thread."""
        services, endpoints = self._service_tracker, self._endpoints_tracker
        return Tracked(services.changes_total, services.pending, endpoints.changes_total, endpoints.pending)

    def lost(self) -> tuple[Lost, ...]:
        """Return the claims to frontends that another Service holds."""
        return self._frontends.lost()


def _plans_differ(before: NodeView, after: NodeView) -> bool:
    """Tell whether a plan may depend on what has changed about the node."""
    return (before.zone, before.node_ip) != (after.zone, after.node_ip)


def _moved(previous: EndpointSlice, current: EndpointSlice) -> bool:
    """Tell whether a slice now belongs to another Service or family, so that the old one loses it."""
    before, after = previous.metadata.known_labels, current.metadata.known_labels
    return (before.service_name, previous.address_type) != (after.service_name, current.address_type)
