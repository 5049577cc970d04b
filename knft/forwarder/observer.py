"""LocalhostNodePorts: tells the forwarder after each sync which NodePorts have changed."""

from collections.abc import Mapping
from typing import Protocol

from knft.families import Family
from knft.forwarder.ports import ForwardedPort, ForwardedPorts, PortChanges
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState


class PortsReceiver(Protocol):
    """What receives changed NodePorts, without blocking the sync."""

    def update(self, family: Family, changes: Mapping[int, ForwardedPort | None]) -> None:
        """Serve the changed NodePorts from now on."""


class LocalhostNodePorts(SyncObserver):
    """Observes syncs: the plans of changed Service ports are also those of NodePorts on loopback addresses."""

    def __init__(self, receivers: Mapping[Family, PortsReceiver]) -> None:
        """``receivers`` serve the NodePorts of their families."""
        self._ports = {family: ForwardedPorts() for family in receivers}
        self._left = set[Family]()
        """The families whose tables are left to an older version of knft, which serves their NodePorts."""
        self._receivers = receivers

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Pass the changes of the sync to the forwarder."""
        family = report.family
        ports = self._ports.get(family)
        if ports is None:
            return
        changes = ports.update([(name, state.plan(name)) for name in report.changed_service_ports])
        if family in self._left:
            self._left.discard(family)
            changes = dict(ports.by_number)  # All were closed.
        self._receivers[family].update(family, changes)

    def table_left(self, family: Family) -> None:
        """Close all listeners of the family, so that the process that programs it can open them."""
        if family in self._ports and family not in self._left:
            self._left.add(family)
            closed: PortChanges = dict.fromkeys(self._ports[family].by_number)
            self._receivers[family].update(family, closed)
