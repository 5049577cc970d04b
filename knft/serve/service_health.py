"""Serves the healthCheckNodePorts of Services, for each family (docs/behaviour/health.md#services).

    sync ──ServicesWithHealthCheck.update──▶ HealthCheckChanges ──HTTP thread──▶ HealthCheckServers.apply

The thread that syncs reads the changed Services and passes plain values to the HTTP thread, which opens the ports.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus

from msgspec import Struct

from knft.config import Config
from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.serve.events import OnEvent, service_event
from knft.serve.http_message import JSON, NO_SNIFFING, Request, Response
from knft.serve.http_thread import HttpThread, Listener
from knft.serve.sockets import WILDCARDS, listen_in_one_family
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

RETRY_SECONDS = 30.0
"""When to retry a port that could not be opened; a sync retries it earlier."""

FIRST_UNPRIVILEGED_PORT = 1024
"""Lower ports belong to other programs, such as an SSH server that may be restarting."""

_LISTEN_FAILED_REASON = "FailedToStartServiceHealthcheck"


class HealthCheck(Struct, frozen=True):
    """The health check port of a Service, and the number of its ready endpoint addresses on this node."""

    port: int
    local_endpoints: int


class HealthCheckChanges(Struct, frozen=True):
    """What a sync changed: health checks by Service (None: removed), and the addresses to listen on."""

    services: dict[NamespacedName, HealthCheck | None]
    addresses: frozenset[str]


def response_body(service: NamespacedName, local_endpoints: int, *, healthy: bool) -> bytes:
    """Return the response body of a Service: JSON, indented with tabs, without a trailing newline."""
    document = {
        "service": {"namespace": service.namespace, "name": service.name},
        "localEndpoints": local_endpoints,
        "serviceProxyHealthy": healthy,
    }
    return json.dumps(document, indent="\t").encode()


class ServicesWithHealthCheck:
    """The Services of one family that have a health check port, each with its Service ports that have one."""

    def __init__(self) -> None:
        """Start with none."""
        self._ports_by_service: dict[NamespacedName, set[ServicePortName]] = {}

    def update(
        self, changed: Iterable[ServicePortName], state: ServiceState
    ) -> dict[NamespacedName, HealthCheck | None]:
        """Return the health checks of the changed Services; None for those that have lost theirs."""
        touched: set[NamespacedName] = set()
        for name in changed:
            port = state.service_port(name)
            if port is not None and port.health_check_node_port:
                self._ports_by_service.setdefault(name.service, set()).add(name)
                touched.add(name.service)
            elif self._ports_by_service and name.service in self._ports_by_service:
                self._ports_by_service[name.service].discard(name)
                touched.add(name.service)
        return {service: self._health_check(service, state) for service in touched}

    def _health_check(self, service: NamespacedName, state: ServiceState) -> HealthCheck | None:
        ports = (state.service_port(name) for name in self._ports_by_service[service])
        number = next((port.health_check_node_port for port in ports if port is not None), 0)
        if not number:
            del self._ports_by_service[service]
            return None
        return HealthCheck(number, state.local_ready_endpoints(service))


class HealthCheckServers:
    """The health check servers of one family, one for each Service and address; use it only in the HTTP thread."""

    def __init__(
        self,
        family: Family,
        node_name: str,
        thread: HttpThread,
        is_healthy: Callable[[], bool],
        on_event: OnEvent,
        *,
        own_ports: Mapping[int, str],
    ) -> None:
        """Listen on no port yet. ``own_ports`` are those of knft's other servers, with the flags that set them."""
        self.listen_failures = 0
        """Number of failed attempts to open a port."""
        self._family = family
        self._node_name = node_name
        self._thread = thread
        self._is_healthy = is_healthy
        self._on_event = on_event
        self._own_ports = own_ports
        self._addresses: frozenset[str] = frozenset()
        self._health_checks: dict[NamespacedName, HealthCheck] = {}
        self._listeners: dict[NamespacedName, dict[tuple[str, int], Listener]] = {}
        self._failures: dict[NamespacedName, str] = {}
        self._is_retry_scheduled = False

    @property
    def service_count(self) -> int:
        """Number of Services with an open port."""
        return len(self._listeners)

    @property
    def has_failures(self) -> bool:
        """Whether some port could not be opened."""
        return bool(self._failures)

    def apply(self, changes: HealthCheckChanges) -> None:
        """Open and close ports, and update the endpoint counts."""
        services = changes.services.keys() | self._failures.keys()
        if changes.addresses != self._addresses:
            self._addresses = changes.addresses
            services |= self._health_checks.keys()
        for service, health_check in changes.services.items():
            if health_check is not None:
                self._health_checks[service] = health_check
            else:
                self._health_checks.pop(service, None)
                self._failures.pop(service, None)
        # Close before opening: two Services may have swapped their ports.
        for service in services:
            self._close(service, keep=self._listen_addresses(service))
        for service in sorted(services & self._health_checks.keys()):
            self._listen(service)

    def _listen_addresses(self, service: NamespacedName) -> set[tuple[str, int]]:
        health_check = self._health_checks.get(service)
        return {(address, health_check.port) for address in self._addresses} if health_check is not None else set()

    def _close(self, service: NamespacedName, *, keep: set[tuple[str, int]]) -> None:
        listeners = self._listeners.get(service, {})
        for address in listeners.keys() - keep:
            listeners.pop(address).close()
        if not listeners:
            self._listeners.pop(service, None)

    def _listen(self, service: NamespacedName) -> None:
        if refusal := self._refusal(self._health_checks[service].port):
            self._report_refusal(service, refusal)
            return
        listeners = self._listeners.get(service, {})
        for address, port in sorted(self._listen_addresses(service) - listeners.keys()):
            try:
                listening_socket = listen_in_one_family(self._family, address, port)
            except OSError as error:
                self._report_failure(service, f"{address} port {port}: {error.strerror}")
                return
            name = f"health check port of Service {service}"
            handler = partial(self._respond, service)
            listeners[address, port] = self._thread.listen(listening_socket, handler, name)
            self._listeners[service] = listeners
        self._failures.pop(service, None)

    def _refusal(self, port: int) -> str:
        """Return why knft must not listen on a port, although it may be free now; "" if it may."""
        if port in self._own_ports:
            return f"port {port}: knft's own server uses this port ({self._own_ports[port]})"
        if port < FIRST_UNPRIVILEGED_PORT:
            return f"port {port}: it is privileged; give the Service a healthCheckNodePort from the range of NodePorts"
        return ""

    def _report_refusal(self, service: NamespacedName, reason: str) -> None:
        if self._failures.get(service) != reason:
            self.listen_failures += 1
            self._failures[service] = reason
            self._report(
                service, f"node {self._node_name} does not serve health checks of Service {service} at {reason}"
            )

    def _report(self, service: NamespacedName, message: str) -> None:
        log.error("%s", message)
        self._on_event(service_event(service, _LISTEN_FAILED_REASON, "Listen", message))

    def _report_failure(self, service: NamespacedName, reason: str) -> None:
        """Close all ports of a Service, as one of its addresses is unavailable, and schedule a retry."""
        self.listen_failures += 1
        self._close(service, keep=set())
        if self._failures.get(service) != reason:
            self._failures[service] = reason
            message = f"node {self._node_name} cannot serve health checks of Service {service} at {reason}"
            self._report(service, f"{message}; retrying every {RETRY_SECONDS:.0f} s")
        if not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            self._thread.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._is_retry_scheduled = False
        self.apply(HealthCheckChanges({}, self._addresses))

    def _respond(self, service: NamespacedName, _request: Request) -> Response:
        health_check = self._health_checks.get(service)
        if health_check is None:
            log.error("received a health check for Service %s, which no longer has a health check port", service)
            return Response(HTTPStatus.OK, b"")
        healthy, count = self._is_healthy(), health_check.local_endpoints
        status = HTTPStatus.OK if count and healthy else HTTPStatus.SERVICE_UNAVAILABLE
        headers = (NO_SNIFFING, ("X-Load-Balancing-Endpoint-Weight", str(count)))
        return Response(status, response_body(service, count, healthy=healthy), JSON, headers)


class ServiceHealth(SyncObserver):
    """Observes syncs and passes changed health checks to the servers of both families."""

    def __init__(
        self,
        config: Config,
        thread: HttpThread,
        is_healthy: Callable[[], bool],
        on_event: OnEvent,
        *,
        own_ports: Mapping[int, str],
    ) -> None:
        """Serve in ``thread``; ``is_healthy`` tells whether the syncs of every family are in time.

        ``own_ports`` are the ports of knft's other servers, with the flags that set them.
        """
        self._thread = thread
        self._listens_on_wildcard = {family: config.nodeports_on_all_addresses(family) for family in Family}
        self._services = {family: ServicesWithHealthCheck() for family in Family}
        self._addresses = dict.fromkeys(Family, frozenset[str]())
        self.servers = {
            family: HealthCheckServers(family, config.node_name, thread, is_healthy, on_event, own_ports=own_ports)
            for family in Family
        }

    def loop_started(self, _family: Family) -> None:
        """Do nothing: the first sync tells which ports to open."""

    def sync_queued(self, _family: Family) -> None:
        """Do nothing."""

    def sync_failed(self, _family: Family, _seconds: float, _error: str) -> None:
        """Keep the current ports and counts."""

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Pass the changes of the sync to the HTTP thread."""
        family = report.family
        services = self._services[family].update(report.changed_service_ports, state)
        listens_on_wildcard = self._listens_on_wildcard[family]
        addresses = frozenset({WILDCARDS[family]}) if listens_on_wildcard else state.node.nodeport_ips
        servers = self.servers[family]
        if services or addresses != self._addresses[family] or servers.has_failures:
            self._addresses[family] = addresses
            self._thread.call_soon(partial(servers.apply, HealthCheckChanges(services, addresses)))

    def table_left(self, family: Family) -> None:
        """Close all ports of the family, so that the process that programs it can open them."""
        if self._addresses[family]:
            self._addresses[family] = frozenset()
            self._thread.call_soon(partial(self.servers[family].apply, HealthCheckChanges({}, frozenset())))
