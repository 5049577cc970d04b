"""EndpointsChangeTracker and EndpointsMap (docs/behaviour/tracking.md#endpoint-changes)."""

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import EndpointSlice
from knft.track.slices import EndpointsByPort, EndpointsChange, EndpointSliceCache

TriggerTimes = dict[NamespacedName, tuple[datetime, ...]]


class EndpointsUpdate(Struct, frozen=True):
    """The result of ``EndpointsMap.update``.

    ``former`` are the earlier endpoints of each Service port whose endpoints changed. ``conntrack_cleanup_required``
    is true if a changed Service has, or had, UDP endpoints. ``trigger_times`` are when, in UTC, the changes happened in
    the cluster, for the network programming latency.
    """

    former: Mapping[ServicePortName, tuple[Endpoint, ...]]
    conntrack_cleanup_required: bool
    trigger_times: TriggerTimes


class EndpointsChangeTracker:
    """Accumulates changes of EndpointSlices between two syncs."""

    def __init__(self, family: Family, node_name: str, start_time: datetime) -> None:
        """Track slices of ``family``; trigger times before ``start_time`` are ignored."""
        self._address_type = family.value
        self._start_time = start_time
        self._cache = EndpointSliceCache(node_name)
        self._trigger_times: dict[NamespacedName, list[datetime]] = {}
        self.changes_total = 0
        """How many slices of the family were recorded, including those that change nothing."""
        self.changes_pending = 0
        """How many recorded changes await the next ``drain``; a slice that changes twice counts twice."""

    def record_slice(self, endpoint_slice: EndpointSlice, *, remove: bool) -> bool:
        """Record a changed or removed slice; return whether that changes anything."""
        label = endpoint_slice.metadata.proxy_labels.service_name
        if endpoint_slice.address_type != self._address_type or not label:
            return False
        service = NamespacedName(endpoint_slice.metadata.namespace, label)
        self.changes_total += 1
        if not self._cache.update_pending(service, endpoint_slice, remove=remove):
            return False
        self.changes_pending += 1
        if remove:
            self._trigger_times.pop(service, None)
        else:
            self._record_trigger_time(service, endpoint_slice)
        return True

    def _record_trigger_time(self, service: NamespacedName, endpoint_slice: EndpointSlice) -> None:
        annotations = endpoint_slice.metadata.annotations
        time = parse_time(annotations.trigger_time if annotations else None)
        if time is not None and time > self._start_time:
            self._trigger_times.setdefault(service, []).append(time)

    @property
    def too_large(self) -> dict[NamespacedName, str]:
        """The Services with too many endpoints, as of the last ``drain``, and why each is too large."""
        return self._cache.too_large

    def local_ready_endpoints(self, service: NamespacedName) -> int:
        """Return how many distinct addresses of a Service are local and ready, as of the last ``drain``."""
        endpoints = itertools.chain.from_iterable(self._cache.endpoints(service).values())
        return len({endpoint.address for endpoint in endpoints if endpoint.is_local and endpoint.ready})

    def slices(self, service: NamespacedName) -> tuple[EndpointSlice, ...]:
        """Return the slices of a Service, with the pending changes applied; from any thread."""
        return self._cache.slices(service)

    def services_with_slices(self) -> tuple[NamespacedName, ...]:
        """Return the Services that have slices, pending ones included; from any thread."""
        return self._cache.services()

    @property
    def removals(self) -> int:
        """How many Services have lost their last slice, since the start."""
        return self._cache.removals

    def node_names(self) -> frozenset[str]:
        """Return the nodes of all endpoints, those of pending changes included; iterates over all endpoints."""
        return self._cache.node_names()

    def drain(self) -> tuple[dict[NamespacedName, EndpointsChange], TriggerTimes]:
        """Return the pending changes and their trigger times, and clear them."""
        times = {service: tuple(service_times) for service, service_times in self._trigger_times.items()}
        self._trigger_times = {}
        self.changes_pending = 0
        return self._cache.drain(), times


class EndpointsMap(Mapping[ServicePortName, tuple[Endpoint, ...]]):
    """The endpoints of every Service port of one family, sorted by key (``address:port``), as of the last sync."""

    def __init__(self) -> None:
        """Start empty."""
        self.endpoints: dict[ServicePortName, tuple[Endpoint, ...]] = {}
        """The endpoints; not to be modified. Its methods are faster than those of Mapping."""

    def update(self, tracker: EndpointsChangeTracker) -> EndpointsUpdate:
        """Merge the pending changes of ``tracker``."""
        changes, trigger_times = tracker.drain()
        former: dict[ServicePortName, tuple[Endpoint, ...]] = {}
        udp = False
        for service, (previous, current) in changes.items():
            before, after = _by_service_port(service, previous), _by_service_port(service, current)
            for name in before | after:
                if before.get(name) != after.get(name):
                    former[name] = before.get(name, ())
                udp = udp or name.protocol == "UDP"
            for name in before:
                self.endpoints.pop(name, None)
            self.endpoints.update(after)
        return EndpointsUpdate(former, udp, trigger_times)

    def __getitem__(self, name: ServicePortName) -> tuple[Endpoint, ...]:
        """Return the endpoints of one Service port."""
        return self.endpoints[name]

    def __iter__(self) -> Iterator[ServicePortName]:
        """Iterate over the names of Service ports that have endpoints."""
        return iter(self.endpoints)

    def __len__(self) -> int:
        """Count the Service ports that have endpoints."""
        return len(self.endpoints)


def _by_service_port(
    service: NamespacedName, endpoints: EndpointsByPort
) -> dict[ServicePortName, tuple[Endpoint, ...]]:
    return {
        ServicePortName(service.namespace, service.name, port.name, port.protocol): of_port
        for port, of_port in endpoints.items()
    }


def parse_time(text: str | None) -> datetime | None:
    """Return an RFC 3339 time with an offset, or None if ``text`` is not one."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
