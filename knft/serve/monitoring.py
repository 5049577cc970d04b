"""Creates the observers and HTTP servers of one process: health checks, metrics, status pages, events."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from knft.config import Config
from knft.configuration.settings import Settings
from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.serve.command_pages import CommandPages, CommandSource
from knft.serve.control_server import ControlServer
from knft.serve.events import EventReporter, OnEvent, node_event
from knft.serve.history import ChangeHistory
from knft.serve.http_server import HttpServer
from knft.serve.http_thread import HttpThread
from knft.serve.kernel_counters import KernelCounters, PacketCounts
from knft.serve.last_syncs import LastSyncs
from knft.serve.metrics import Metrics, ScrapeCollector
from knft.serve.metrics_observer import MetricsObserver, read_scrape_values
from knft.serve.pages import MetricsSource, ProcessInfo, health_router, metrics_router
from knft.serve.proxy_health import ProxyHealth
from knft.serve.service_health import ServiceHealth
from knft.serve.sockets import split_address
from knft.serve.sync_totals import SyncTotalsObserver
from knft.serve.timestamp import Clock, now
from knft.sync.daemon import Daemon
from knft.sync.observer import SyncObserver

if TYPE_CHECKING:
    from knft.forwarder.forwarder import Forwarder
    from knft.serve.service_counters import ServiceCounters
    from knft.serve.status import StatusSources


class Monitoring:
    """The observers and HTTP servers of one process.

    Pass ``observers_with`` to the daemon. ``metrics`` has methods to record what no sync reports: requests to the API
    server, and runs of the conntrack reconciler.
    """

    def __init__(
        self,
        settings: Settings,
        health: ProxyHealth,
        *,
        node_eligible: Callable[[], bool],
        on_event: OnEvent,
        on_fatal_listen_error: Callable[[str], None],
        flags: Mapping[str, str] | None = None,
        clock: Clock = now,
    ) -> None:
        """Open no port yet; raise UsageError for an invalid bind address.

        ``node_eligible`` tells whether load balancers should send new connections to the node. Any thread may call
        ``on_event`` and ``on_fatal_listen_error``; they must not block. ``on_fatal_listen_error`` gets an error message
        when a server cannot listen and bindAddressHardFail is set. ``flags`` are the flags of the command line.
        """
        config, thread = settings.config, HttpThread(clock)
        self._config = config
        self._thread = thread
        self._clock = clock
        self.started = clock()
        self.metrics = Metrics()
        self.health = health
        self.last_syncs = LastSyncs(clock)
        self.kernel_counters = KernelCounters(
            _service_counters(clock) if config.service_counters else None,
            tuple(_packet_counts(config)),
        )
        self.metrics.register(self.kernel_counters)
        if self.kernel_counters.services is not None:
            self.metrics.register_text(self.kernel_counters.services.connections_text)
        self.history = ChangeHistory(clock)
        self.sync_totals = SyncTotalsObserver(clock)
        self.service_health = ServiceHealth(
            config, thread, self.health.is_healthy, on_event, own_ports=_own_ports(settings)
        )
        self._observers: tuple[SyncObserver, ...] = (
            self.health,
            MetricsObserver(self.metrics, clock),
            self.service_health,
            EventReporter(config.node_name, on_event),
            self.last_syncs,
            self.sync_totals,
            *([self.kernel_counters.services] if self.kernel_counters.services is not None else []),
        )

        def report_failure(reason: str, message: str) -> None:
            on_event(node_event(config.node_name, reason, message, warning=True))
            if settings.bind_address_hard_fail:
                on_fatal_listen_error(message)

        self._servers: list[HttpServer] = []
        process = ProcessInfo(self.started, settings.document, dict(flags or {}), settings.profiling)
        source = MetricsSource(self.metrics.scrape, self.metrics.scrape_slis, self.metrics.count_ping)
        health_pages = health_router(self.health, node_eligible, self.metrics.count_probe)
        metrics_pages = metrics_router(process, source, clock)
        for name, address, router, reason in (
            ("health", settings.healthz_bind_address, health_pages, "FailedToStartProxierHealthcheck"),
            ("metrics", settings.metrics_bind_address, metrics_pages, "FailedToStartMetricServer"),
        ):
            if address:
                on_failure = partial(report_failure, reason)
                retries = not settings.bind_address_hard_fail
                self._servers.append(HttpServer(thread, name, address, router, on_failure=on_failure, retries=retries))

    def observers_with(self, *others: SyncObserver) -> tuple[SyncObserver, ...]:
        """Return the observers and ``others``; the history is the last one, because nothing depends on its work."""
        return (*self._observers, *others, self.history)

    def register_counters(
        self, daemon: Daemon, library: WorkerProcess, dropped_log_lines: Callable[[], int] = lambda: 0
    ) -> None:
        """Add the counters that ``daemon`` and ``library`` keep to the metrics, and the number of dropped log lines."""
        collector = ScrapeCollector(
            lambda: read_scrape_values(daemon, self.service_health, library.start_count, dropped_log_lines())
        )
        self.metrics.register(collector)

    def serve_commands(
        self,
        port_id: int,
        daemon: Daemon,
        source: CommandSource,
        forwarders: "Mapping[Family, Forwarder]" = MappingProxyType({}),
    ) -> None:
        """Answer commands such as ``knft status``; ``port_id`` is that of the instance lock's socket.

        ``forwarders`` serve NodePorts on loopback addresses, in the families in which that is enabled.
        """

        def status_sources() -> "StatusSources":
            from knft.serve.status import StatusSources  # noqa: PLC0415 - few processes are ever asked

            return StatusSources(
                self._config.node_name,
                self.started,
                self._clock,
                daemon,
                self.health,
                self.last_syncs,
                source.status,
                forwarders,
            )

        pages = CommandPages(
            self._config,
            source,
            status_sources,
            history=self.history.read,
            counters=lambda: self.sync_totals.read(self.kernel_counters.services),
            audits=daemon.audits,
        )
        self._thread.call_soon(ControlServer(self._thread, port_id, pages.respond).start)

    def start(self) -> None:
        """Start the HTTP thread; report ports that are in use to the callbacks."""
        for server in self._servers:
            self._thread.call_soon(server.start)
        self._thread.start()

    def stop(self) -> None:
        """Release every port; does nothing if stopped already."""
        self._thread.stop()


def _service_counters(clock: Clock) -> "ServiceCounters":
    from knft.serve.service_counters import ServiceCounters  # noqa: PLC0415 - few processes count

    return ServiceCounters(clock)


def _own_ports(settings: Settings) -> dict[int, str]:
    """Return the ports of knft's own servers, with the flags that set them."""
    bound = (
        ("--healthz-bind-address", settings.healthz_bind_address),
        ("--metrics-bind-address", settings.metrics_bind_address),
    )
    return {split_address(address)[1]: flag for flag, address in bound if address}


def _packet_counts(config: Config) -> Iterator[PacketCounts]:
    if config.drop_invalid_packets:
        from knft.serve.invalid_packets import InvalidPackets  # noqa: PLC0415 - few processes drop them

        yield InvalidPackets()
    if config.localhost_nodeports:
        from knft.serve.localhost_rejections import LocalhostRejections  # noqa: PLC0415 - few processes reject them

        yield LocalhostRejections(config)
