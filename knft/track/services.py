"""ServiceChangeTracker and ServicePortMap (docs/behaviour/tracking.md#services)."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.model.objects import Service
from knft.model.service_port import ServicePort
from knft.track.expand import ServicePorts, expand_service
from knft.track.size_limits import frontends_error


class _PendingChange(Struct, frozen=True):
    """The ports of one Service at the last ``drain`` and now; None without a cluster IP in the family."""

    previous: ServicePorts | None
    current: ServicePorts | None


class ServiceChangeTracker:
    """Accumulates changes of Services between two syncs."""

    def __init__(self, family: Family) -> None:
        """Track the cluster IPs of ``family``."""
        self._family = family
        self._changes: dict[NamespacedName, _PendingChange] = {}
        self.too_large: dict[NamespacedName, str] = {}
        """The Services with too many frontends, and why each is too large."""
        self.changes_total = 0
        """How many changes were recorded, including those that change nothing in this family."""

    @property
    def pending(self) -> int:
        """How many Services differ from the last ``drain``."""
        return len(self._changes)

    def record_service(self, previous: Service | None, current: Service | None) -> bool:
        """Record a changed Service; return whether a change of any Service is pending.

        kube-proxy's ServiceChangeTracker returns that, too. EndpointsChangeTracker returns whether this change is one.
        """
        service = current or previous
        if service is None:
            return False
        self.changes_total += 1
        before, ports = expand_service(previous, self._family), expand_service(current, self._family)
        if before is None and ports is None and not (self._changes or self.too_large):
            # It has no cluster IP of this family, like all Services of a single-stack cluster of the other one.
            return False
        name = service.key
        self._record_size(name, current, ports)
        change = self._changes.get(name)
        if change is not None:
            before = change.previous
        if before != ports:
            self._changes[name] = _PendingChange(before, ports)
        elif change is not None:
            del self._changes[name]
        return bool(self._changes)

    def pending_change(self, name: NamespacedName) -> _PendingChange | None:
        """Return how a Service differs from the last ``drain``, None if it does not."""
        return self._changes.get(name)

    def _record_size(self, name: NamespacedName, service: Service | None, ports: ServicePorts | None) -> None:
        # A Service that is too large is expanded to no ports.
        error = frontends_error(service) if ports is not None and not ports else ""
        if error:
            self.too_large[name] = error
        else:
            self.too_large.pop(name, None)

    def has_pending_node_ports(self) -> bool:
        """Tell whether a Service that differs from the last ``drain`` has a NodePort."""
        changes = self._changes.values()
        return bool(changes) and any(port.node_port for change in changes for port in (change.current or {}).values())

    def drain(self) -> dict[NamespacedName, _PendingChange]:
        """Return the pending changes, and clear them."""
        changes, self._changes = self._changes, {}
        return changes


class ServicePortMap(Mapping[ServicePortName, ServicePort]):
    """The Service ports of one family, as of the last sync."""

    def __init__(self) -> None:
        """Start empty."""
        self.ports: dict[ServicePortName, ServicePort] = {}
        """The Service ports; not to be modified. Its methods are faster than those of Mapping."""
        self.node_port_count = 0
        """How many Service ports have a NodePort."""

    def update(self, tracker: ServiceChangeTracker) -> dict[ServicePortName, ServicePort | None]:
        """Merge the pending changes of ``tracker``; return what the changed Service ports were, None for new ones."""
        former: dict[ServicePortName, ServicePort | None] = {}
        for change in tracker.drain().values():
            previous, current = change.previous or {}, change.current or {}
            for name in previous | current:
                before, after = self.ports.pop(name, None), current.get(name)
                if previous.get(name) != after:
                    former[name] = before
                self.node_port_count += _has_node_port(after) - _has_node_port(before)
            self.ports.update(current)
        return former

    def __getitem__(self, name: ServicePortName) -> ServicePort:
        """Return one Service port."""
        return self.ports[name]

    def __iter__(self) -> Iterator[ServicePortName]:
        """Iterate over the names."""
        return iter(self.ports)

    def __len__(self) -> int:
        """Count the Service ports."""
        return len(self.ports)


def _has_node_port(port: ServicePort | None) -> bool:
    return port is not None and port.node_port > 0
