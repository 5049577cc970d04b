"""Events: what is told to the cluster about this node and its Services (behaviour.md I.10); others post them."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from knft.model.names import Family, NamespacedName, ServicePortName
from knft.sync.observer import Observer
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState


class Event(Struct, frozen=True):
    """An event about a Node (without namespace and uid) or a Service."""

    kind: Literal["Node", "Service"]
    namespace: str
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


OnEvent = Callable[[Event], None]
"""Is told of events, by any thread; it must not wait for anything."""


def about_node(node_name: str, kind: Literal["Normal", "Warning"], reason: str, note: str = "") -> Event:
    """Return an event about this node."""
    return Event("Node", "", node_name, "", kind, reason, "StartKubeProxy", note)


def about_service(
    service: NamespacedName, reason: str, action: str, note: str, kind: Literal["Normal", "Warning"] = "Warning"
) -> Event:
    """Return an event about a Service; its uid is its name, as kube-proxy has it."""
    return Event("Service", service.namespace, service.name, str(service), kind, reason, action, note)


def about_left_out(service: NamespacedName, note: str) -> Event:
    """Return what is told of a Service that goes without rules, or without some of them."""
    return about_service(service, "FailedToProgramService", "Sync", note)


class Reporter(Observer):
    """Hears of syncs, as an Observer, and has the cluster told of what concerns it."""

    def __init__(self, node_name: str, on_event: OnEvent) -> None:
        """Report for ``node_name``."""
        self._node_name = node_name
        self._on_event = on_event
        self._started = False
        self._left_out: dict[Family, dict[ServicePortName, str]] = {}

    def looping(self, _family: Family) -> None:
        """Tell once that the proxy starts."""
        if not self._started:
            self._started = True
            self._on_event(about_node(self._node_name, "Normal", "Starting"))

    def queued(self, _family: Family) -> None:
        """Tell nobody."""

    def synced(self, report: SyncReport, state: ServiceState) -> None:
        """Tell of Services that are left out, each reason when it begins, and of those that no longer are."""
        before, now = self._left_out.get(report.family, {}), report.left_out
        rules = f"the {report.family.value} rules of node {self._node_name}"
        for name, reason in sorted(now.items() - before.items()):
            note = f"left out of {rules}, and tried again: {name}: {reason}"
            self._on_event(about_left_out(name.service, note))
        # Of those only that are still there.
        back = {name.service for name in before if state.has(name)} - {name.service for name in now}
        for service in sorted(back):
            note = f"no longer left out of {rules}"
            self._on_event(about_service(service, "ProgrammedService", "Sync", note, "Normal"))
        self._left_out[report.family] = dict(now)

    def failed(self, _family: Family, _seconds: float) -> None:
        """Tell nobody: the log has it, and the health."""
