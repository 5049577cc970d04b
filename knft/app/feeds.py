"""Where ``knft run`` has its objects from: a directory of manifests, or the API server."""

import logging
import threading
from collections.abc import Iterable
from typing import Protocol

from knft.apiserver import events
from knft.apiserver.connection import Connection
from knft.apiserver.node import OwnNode
from knft.apiserver.server_url import without_credentials
from knft.apiserver.source import ClusterSource
from knft.app.shutdown import Shutdown
from knft.configuration.settings import Settings
from knft.errors import ApiServerError, KnftError
from knft.model.events import Event
from knft.model.names import NamespacedName
from knft.model.objects import ObjectChange
from knft.serve.events import failed_to_program_event
from knft.serve.metrics import Metrics
from knft.source.directory import DirectorySource, ScanResult
from knft.sync.daemon import Daemon

log = logging.getLogger("knft")


class Feed(Protocol):
    """A source of objects, for one daemon."""

    configures_host: bool
    """Whether this is a node of a cluster, whose conntrack and memory settings are knft's to make."""

    def start(self, daemon: Daemon, shutdown: Shutdown) -> None:
        """Hand over all objects there are, then follow them; return where ``ending`` comes first, too."""

    def count_requests(self, metrics: Metrics) -> None:
        """Have requests to an API server counted."""

    def is_eligible(self) -> bool:
        """Tell whether load balancers should send new connections to this node."""

    def record_event(self, event: Event) -> None:
        """Have the cluster's people told of something; from any thread, without waiting."""


class DirectoryFeed:
    """A directory of manifests, and nobody to be told of anything."""

    configures_host = False

    def __init__(self, path: str) -> None:
        """Read the directory; raise SourceError where there is none."""
        self._source = DirectorySource(path)
        self._initial_scan = self._source.scan()

    def handle_initial_objects(self, daemon: Daemon) -> None:
        """Hand over what the directory has held at the beginning."""
        _handle_scan(daemon, self._initial_scan)

    def start(self, daemon: Daemon, shutdown: Shutdown) -> None:
        """Follow the directory in a thread of its own."""
        self.handle_initial_objects(daemon)
        shutdown.start_thread("manifests", lambda: self._watch(daemon, shutdown))

    def _watch(self, daemon: Daemon, shutdown: Shutdown) -> None:
        for _ in self._source.watch(shutdown.stop):
            try:
                _handle_scan(daemon, self._source.scan())
            except KnftError as error:
                log.warning("%s", error)

    def count_requests(self, metrics: Metrics) -> None:
        """Have nothing to count."""

    def is_eligible(self) -> bool:
        """Tell that it is: manifests say nothing of that."""
        return True

    def record_event(self, event: Event) -> None:
        """Tell nobody: what matters is in the log as well."""


def _handle_scan(daemon: Daemon, scan: ScanResult) -> None:
    for problem in scan.problems:
        log.warning("%s", problem)
    for remark in scan.notices:
        log.info("%s", remark)
    daemon.handle(scan.changes)


class ApiServerFeed:
    """The API server."""

    configures_host = True

    def __init__(self, settings: Settings) -> None:
        """Read how it is reached, and ask nothing; raise UsageError where that cannot be meant."""
        config = settings.config
        self._metrics: Metrics | None = None
        self._connection = Connection(settings.client, on_response=self._record_request)
        self._node_name = config.node_name
        self._needs_pod_cidrs = config.detect_local_mode == "NodeCIDR"
        self._event_poster = events.EventPoster(self._connection, config.node_name)
        self._node: OwnNode | None = None

    def start(self, daemon: Daemon, shutdown: Shutdown) -> None:
        """Wait for the own Node and all that rules come from, and follow them; raise ApiServerError without a Node."""

        def fail(message: str) -> None:
            shutdown.fail(ApiServerError(message))

        self._node = node = OwnNode(self._node_name, needs_pod_cidrs=self._needs_pod_cidrs, request_restart=fail)

        handler_lock = threading.Lock()

        def handle(changes: Iterable[ObjectChange]) -> None:
            with handler_lock:
                # First, so that no sync comes of what the process ends by.
                daemon.handle(node.filter_changes(changes))

        source = ClusterSource(
            self._connection,
            self._node_name,
            handle,
            on_failure=shutdown.fail,
            on_invalid_service=self._record_skipped_service,
        )
        log.info("following %s as node %s", without_credentials(self._connection.server), self._node_name)
        source.start(shutdown.stop)
        self._event_poster.start(shutdown.stop)
        if node.wait_ready(shutdown.stop, lambda: _node_problem(source)) is not None:
            with handler_lock:
                pass  # The daemon has it now, too: without its addresses and its zone, rules would be others.
            source.wait_synced()

    def count_requests(self, metrics: Metrics) -> None:
        """Have requests counted by the server's name and port, as client-go has it."""
        self._metrics = metrics

    def _record_request(self, code: str, method: str, server: str, seconds: float) -> None:
        if self._metrics is not None:
            host = without_credentials(server).partition("://")[2].partition("/")[0]
            self._metrics.observe_api_request(code, method, host, seconds)

    def is_eligible(self) -> bool:
        """Tell whether the Node is there and not about to go."""
        return self._node is not None and self._node.eligible

    def _record_skipped_service(self, service: NamespacedName, reason: str) -> None:
        self.record_event(failed_to_program_event(service, f"on node {self._node_name}: {reason}"))

    def record_event(self, event: Event) -> None:
        """Have an event posted."""
        self._event_poster.post(event)


def _node_problem(source: ClusterSource) -> str:
    """Return why nobody knows what the Node lacks, "" where it is known."""
    return source.problem("nodes") or ("" if source.has_listed("nodes") else "the API server has not answered yet")
