"""ServiceChangeTracker and ServicePortMap (docs/behaviour/tracking.md#services)."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import Service
from knft.model.service_port import ServicePort
from knft.track.expand import ServicePorts, expand_service


class _Pending(Struct):
    previous: ServicePorts | None
    current: ServicePorts | None


class ServiceChangeTracker:
    """Accumulates changes of Services between two syncs."""

    def __init__(self, family: Family) -> None:
        """Track the cluster IPs of ``family``."""
        self._family = family
        self._items: dict[NamespacedName, _Pending] = {}
        self.changes_total = 0

    @property
    def pending(self) -> int:
        """How many Services differ from the last ``drain``."""
        return len(self._items)

    def update(self, previous: Service | None, current: Service | None) -> bool:
        """Record a changed Service; return whether any change at all is pending, as kube-proxy does."""
        named = current or previous
        if named is None:
            return False
        self.changes_total += 1
        item = self._items.get(named.key)
        if item is None:
            item = _Pending(expand_service(previous, self._family), None)
            self._items[named.key] = item
        item.current = expand_service(current, self._family)
        if item.previous == item.current:
            del self._items[named.key]
        return bool(self._items)

    def drain(self) -> dict[NamespacedName, _Pending]:
        """Return the pending changes, and start anew."""
        items, self._items = self._items, {}
        return items


class ServicePortMap(Mapping[ServicePortName, ServicePort]):
    """The Service ports of one family, as of the last sync."""

    def __init__(self) -> None:
        """Start empty."""
        self._ports: dict[ServicePortName, ServicePort] = {}

    def update(self, tracker: ServiceChangeTracker) -> frozenset[ServicePortName]:
        """Merge the pending changes of ``tracker``; return the Service ports that are new, different or deleted."""
        items = tracker.drain()
        changed: set[ServicePortName] = set()
        for item in items.values():
            previous, current = item.previous or {}, item.current or {}
            changed |= {name for name, port in current.items() if previous.get(name) != port}
            changed |= previous.keys() - current.keys()
            for name in previous.keys() - current.keys():
                self._ports.pop(name, None)
            self._ports.update(current)
        return frozenset(changed)

    def __getitem__(self, name: ServicePortName) -> ServicePort:
        """Return one Service port."""
        return self._ports[name]

    def __iter__(self) -> Iterator[ServicePortName]:
        """Iterate over the names."""
        return iter(self._ports)

    def __len__(self) -> int:
        """Count the Service ports."""
        return len(self._ports)
