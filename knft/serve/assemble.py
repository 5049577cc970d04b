"""Putting together what one process serves: observers for the daemon, and servers to start and to stop."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from knft.configuration.settings import Settings
from knft.kernel.process import LibraryProcess
from knft.serve.bound import BoundServer
from knft.serve.events import OnEvent, Reporter, about_node
from knft.serve.health import ProxyHealth
from knft.serve.measure import SyncMeasure, follow
from knft.serve.metrics import Metrics
from knft.serve.moment import Clock, now
from knft.serve.pages import About, Scrapes, health_site, metrics_site
from knft.serve.service_health import ServiceHealth
from knft.serve.sockets import allow_many_files
from knft.serve.thread import HttpThread
from knft.sync.daemon import Daemon
from knft.sync.observer import Observer

log = logging.getLogger("knft")


class Serving:
    """What one process serves.

    ``observers`` are for the daemon; ``metrics`` has functions for whoever counts what no sync tells of.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        node_eligible: Callable[[], bool],
        on_event: OnEvent,
        on_hard_failure: Callable[[str], None],
        flags: Mapping[str, str] | None = None,
        clock: Clock = now,
    ) -> None:
        """Open nothing yet; raise UsageError where an address to serve at is none.

        ``node_eligible`` tells whether the node is to get new connections. ``on_event`` and ``on_hard_failure`` are
        called by any thread and must not wait; the latter with a sentence, where a server that cannot start is to end
        the process. ``flags`` are what the process was started with.
        """
        config, thread = settings.config, HttpThread(clock)
        self._thread = thread
        self.metrics = Metrics()
        self.health = ProxyHealth(config.sync_period, clock)
        self.service_health = ServiceHealth(config, thread, self.health.is_healthy, on_event)
        self.observers: tuple[Observer, ...] = (
            self.health,
            SyncMeasure(self.metrics, clock),
            self.service_health,
            Reporter(config.node_name, on_event),
        )

        def tell_failure(reason: str, what: str, sentence: str) -> None:
            on_event(about_node(config.node_name, "Warning", reason, sentence))
            if settings.bind_address_hard_fail:
                on_hard_failure(f"{what} failed: {sentence}")

        self._servers: list[BoundServer] = []
        about = About(clock(), settings.document, dict(flags or {}), settings.profiling)
        scrapes = Scrapes(self.metrics.scrape, self.metrics.scrape_indicators, self.metrics.pinged)
        for what, address, site, reason in (
            ("health", settings.healthz_bind_address, health_site(self.health, node_eligible, self.metrics.probed),
             "FailedToStartProxierHealthcheck"),
            ("metrics", settings.metrics_bind_address, metrics_site(about, scrapes, clock),
             "FailedToStartMetricServer"),
        ):  # fmt: skip
            if address:
                fail = partial(tell_failure, reason, f"the {what} server")
                retries = not settings.bind_address_hard_fail
                self._servers.append(BoundServer(thread, what, address, site, on_failure=fail, retries=retries))

    def follow(self, daemon: Daemon, library: LibraryProcess) -> None:
        """Have each scrape show what these count."""
        self.metrics.followed = lambda: follow(daemon, self.service_health, library.started)

    def start(self) -> None:
        """Begin to serve, in a thread of its own; that a port is taken is told to the callbacks."""
        allow_many_files()
        for server in self._servers:
            self._thread.soon(server.start)
        self._thread.start()

    def stop(self) -> None:
        """Release every port; stopping twice is fine."""
        self._thread.stop()
