"""ServiceHealth: what load balancers ask at Services' healthCheckNodePorts, for each family (behaviour.md G.2).

    sync ──Ports.take──▶ Changes ──the HTTP thread──▶ Servers.apply

The thread that syncs reads the few Services that have changed and hands on plain values; it opens no port itself.
"""

import json
import logging
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus

from msgspec import Struct

from knft.config import Config
from knft.model.names import Family, NamespacedName, ServicePortName
from knft.serve.connection import Room
from knft.serve.events import OnEvent, about_service
from knft.serve.message import JSON, NO_SNIFFING, Request, Response
from knft.serve.sockets import WILDCARDS, listen_in_family
from knft.serve.thread import HttpThread, Listener
from knft.sync.observer import Observer
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

RETRY_SECONDS = 30.0
"""When a port that could not be opened is tried again where no sync comes before."""
MOST_CONNECTIONS = 512

_LISTEN_FAILED = "FailedToStartServiceHealthcheck"


class Wanted(Struct, frozen=True):
    """A Service's health check port, and how many addresses on this node are ready for it."""

    port: int
    local_endpoints: int


class Changes(Struct, frozen=True):
    """What a sync has changed: Services' ports (None: none any more), and where they are to be had."""

    services: dict[NamespacedName, Wanted | None]
    addresses: frozenset[str]


def body_of(service: NamespacedName, local_endpoints: int, *, healthy: bool) -> bytes:
    """Return what is answered for a Service: JSON with tabs, without a newline at its end."""
    document = {
        "service": {"namespace": service.namespace, "name": service.name},
        "localEndpoints": local_endpoints,
        "serviceProxyHealthy": healthy,
    }
    return json.dumps(document, indent="\t").encode()


class Ports:
    """Which Service ports of one family ask for a health check port."""

    def __init__(self) -> None:
        """Start without any."""
        self._by_service: dict[NamespacedName, set[ServicePortName]] = {}

    def take(self, changed: Iterable[ServicePortName], state: ServiceState) -> dict[NamespacedName, Wanted | None]:
        """Return what became of the Services of ``changed`` that have a health check port, or had one."""
        touched: set[NamespacedName] = set()
        for name in changed:
            port = state.service_port(name)
            if port is not None and port.health_check_node_port:
                self._by_service.setdefault(name.service, set()).add(name)
                touched.add(name.service)
            elif self._by_service and name.service in self._by_service:
                self._by_service[name.service].discard(name)
                touched.add(name.service)
        return {service: self._wanted(service, state) for service in touched}

    def _wanted(self, service: NamespacedName, state: ServiceState) -> Wanted | None:
        ports = (state.service_port(name) for name in self._by_service[service])
        number = next((port.health_check_node_port for port in ports if port is not None), 0)
        if not number:
            del self._by_service[service]
            return None
        return Wanted(number, state.local_ready_endpoints(service))


class Servers:
    """One family's servers; everything here happens in the HTTP thread."""

    def __init__(
        self, family: Family, node_name: str, thread: HttpThread, is_healthy: Callable[[], bool], on_event: OnEvent
    ) -> None:
        """Serve nothing yet."""
        self.failures = 0
        """How often a port could not be opened."""
        self._family = family
        self._node_name = node_name
        self._thread = thread
        self._is_healthy = is_healthy
        self._on_event = on_event
        self._room = Room(MOST_CONNECTIONS)
        self._addresses: frozenset[str] = frozenset()
        self._wanted: dict[NamespacedName, Wanted] = {}
        self._open: dict[NamespacedName, dict[tuple[str, int], Listener]] = {}
        self._failing: dict[NamespacedName, str] = {}
        self._retries = False

    @property
    def listeners(self) -> int:
        """How many Services' ports are open."""
        return len(self._open)

    @property
    def is_incomplete(self) -> bool:
        """Whether some port could not be opened."""
        return bool(self._failing)

    def apply(self, changes: Changes) -> None:
        """Open and close ports, and answer with the new counts."""
        touched = changes.services.keys() | self._failing.keys()
        if changes.addresses != self._addresses:
            self._addresses = changes.addresses
            touched |= self._wanted.keys()
        for service, wanted in changes.services.items():
            if wanted is not None:
                self._wanted[service] = wanted
            else:
                self._wanted.pop(service, None)
                self._failing.pop(service, None)
        # All that is closed before anything is opened: a port may go from one Service to another.
        for service in touched:
            self._close(service, self._places(service))
        for service in sorted(touched & self._wanted.keys()):
            self._listen(service)

    def _places(self, service: NamespacedName) -> set[tuple[str, int]]:
        wanted = self._wanted.get(service)
        return {(address, wanted.port) for address in self._addresses} if wanted is not None else set()

    def _close(self, service: NamespacedName, but: set[tuple[str, int]]) -> None:
        listeners = self._open.get(service, {})
        for place in listeners.keys() - but:
            listeners.pop(place).close()
        if not listeners:
            self._open.pop(service, None)

    def _listen(self, service: NamespacedName) -> None:
        listeners = self._open.get(service, {})
        for address, port in sorted(self._places(service) - listeners.keys()):
            try:
                listening = listen_in_family(self._family, address, port)
            except OSError as error:
                self._fail(service, f"{address} port {port}: {error.strerror}")
                return
            answer = partial(self._answer, service)
            listeners[address, port] = self._thread.listen(listening, self._room, answer)
            self._open[service] = listeners
        self._failing.pop(service, None)

    def _fail(self, service: NamespacedName, reason: str) -> None:
        """Serve none of a Service's addresses where one cannot be; it is tried again."""
        self.failures += 1
        self._close(service, set())
        if self._failing.get(service) != reason:
            self._failing[service] = reason
            sentence = f"node {self._node_name} cannot answer health checks for Service {service} at {reason}"
            log.error("%s", sentence)
            self._on_event(about_service(service, _LISTEN_FAILED, "Listen", sentence))
        if not self._retries:
            self._retries = True
            self._thread.later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._retries = False
        self.apply(Changes({}, self._addresses))

    def _answer(self, service: NamespacedName, _request: Request) -> Response:
        wanted = self._wanted.get(service)
        if wanted is None:
            log.error("a health check came for Service %s, which has none any more", service)
            return Response(HTTPStatus.OK, b"")
        healthy, count = self._is_healthy(), wanted.local_endpoints
        status = HTTPStatus.OK if count and healthy else HTTPStatus.SERVICE_UNAVAILABLE
        headers = (NO_SNIFFING, ("X-Load-Balancing-Endpoint-Weight", str(count)))
        return Response(status, body_of(service, count, healthy=healthy), JSON, headers)


class ServiceHealth(Observer):
    """Hears of syncs, as an Observer, and keeps the servers of both families as they are to be."""

    def __init__(self, config: Config, thread: HttpThread, is_healthy: Callable[[], bool], on_event: OnEvent) -> None:
        """Answer in ``thread``; ``is_healthy`` tells whether syncs keep up, of every family."""
        self._thread = thread
        self._everywhere = {family: config.nodeports_everywhere(family) for family in Family}
        self._ports = {family: Ports() for family in Family}
        self._addresses = dict.fromkeys(Family, frozenset[str]())
        self.servers = {family: Servers(family, config.node_name, thread, is_healthy, on_event) for family in Family}

    def looping(self, _family: Family) -> None:
        """Do nothing: what is to be served is known after the first sync."""

    def queued(self, _family: Family) -> None:
        """Do nothing."""

    def failed(self, _family: Family, _seconds: float) -> None:
        """Leave everything as it is."""

    def synced(self, report: SyncReport, state: ServiceState) -> None:
        """Hand on what the sync has changed."""
        family = report.family
        services = self._ports[family].take(report.changed, state)
        everywhere = self._everywhere[family]
        addresses = frozenset({WILDCARDS[family]}) if everywhere else state.node.nodeport_ips
        servers = self.servers[family]
        if services or addresses != self._addresses[family] or servers.is_incomplete:
            self._addresses[family] = addresses
            self._thread.soon(partial(servers.apply, Changes(services, addresses)))
