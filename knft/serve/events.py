"""Creates the Kubernetes events of syncs and servers (docs/behaviour/configuration.md#events).

``knft.apiserver`` posts them; this module only creates them and passes them to a callback.
"""

from collections.abc import Callable

from knft.families import Family
from knft.model.events import Event, ObjectReference
from knft.model.names import NamespacedName, ServicePortName
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

OnEvent = Callable[[Event], None]
"""Takes an event; any thread may call it, and it must not block."""


def node_event(node_name: str, reason: str, note: str = "", *, warning: bool) -> Event:
    """Return an event about this node."""
    return Event(ObjectReference("Node", node_name), reason, "StartKubeProxy", note, warning)


def service_event(service: NamespacedName, reason: str, action: str, note: str, *, warning: bool = True) -> Event:
    """Return an event about a Service; like kube-proxy, use ``namespace/name`` as its uid."""
    regarding = ObjectReference("Service", service.name, service.namespace, str(service))
    return Event(regarding, reason, action, note, warning)


def failed_to_program_event(service: NamespacedName, note: str) -> Event:
    """Return the event about a Service that has no rules, or lacks some of its rules."""
    return service_event(service, "FailedToProgramService", "Sync", note)


class EventReporter(SyncObserver):
    """Reports the start of the proxy, and Services that enter or leave quarantine."""

    def __init__(self, node_name: str, on_event: OnEvent) -> None:
        """Report for the node ``node_name``."""
        self._node_name = node_name
        self._on_event = on_event
        self._started = False
        self._quarantined: dict[Family, dict[ServicePortName, str]] = {}
        self._too_large: dict[Family, dict[NamespacedName, str]] = {}

    def loop_started(self, _family: Family) -> None:
        """Report once that the proxy starts."""
        if not self._started:
            self._started = True
            self._on_event(node_event(self._node_name, "Starting", warning=False))

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Report newly quarantined Service ports, changed reasons, and Services that left quarantine."""
        previous, current = self._quarantined.get(report.family, {}), report.quarantined
        rules = f"the {report.family.value} rules of node {self._node_name}"
        for name, reason in sorted(current.items() - previous.items()):
            note = f"Service port {name} is quarantined in {rules}; knft retries it: {reason}"
            self._on_event(failed_to_program_event(name.service, note))
        # A deleted Service has left quarantine too, but gets no event.
        recovered = {name.service for name in previous if state.has_service_port(name)} - {
            name.service for name in current
        }
        for service in sorted(recovered):
            note = f"Service {service} is no longer quarantined in {rules}"
            self._on_event(service_event(service, "ProgrammedService", "Sync", note, warning=False))
        self._quarantined[report.family] = dict(current)
        self._report_too_large(report)

    def _report_too_large(self, report: SyncReport) -> None:
        """Report the Services that newly became too large, or are too large for another reason."""
        previous = self._too_large.get(report.family, {})
        for service, reason in sorted(report.too_large.items() - previous.items()):
            note = f"Service {service} is too large and has no {report.family.value} rules on any node: {reason}"
            self._on_event(failed_to_program_event(service, note))
        self._too_large[report.family] = dict(report.too_large)
