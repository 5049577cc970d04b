"""ObjectFeeds: start a source of objects (a directory of manifests, or the API server), and pass objects to the daemon.

A source (DirectorySource, ApiServerSource) yields changes of objects and does not know the daemon.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from knft.apiserver import events
from knft.apiserver.api_client import ApiClient
from knft.apiserver.limits import TokenBucket
from knft.apiserver.node import OwnNode
from knft.apiserver.node_names import describe_nodes
from knft.apiserver.server_url import without_credentials
from knft.apiserver.source import WATCHED_RESOURCES, ApiServerSource
from knft.app.shutdown import Shutdown
from knft.configuration.settings import Settings
from knft.control.messages import ServerOutage, SourceStatus
from knft.errors import ApiServerError, KnftError, NodeMismatchError
from knft.model.events import Event
from knft.model.names import NamespacedName
from knft.model.objects import ObjectChange
from knft.model.unknown import NOTHING_UNKNOWN
from knft.serve.events import failed_to_program_event
from knft.serve.manifest_metrics import ManifestCollector, ManifestValues
from knft.serve.metrics import Metrics
from knft.source.directory import DirectorySource, DirectoryStatus
from knft.source.reminders import Reminders
from knft.source.scan_result import ScanResult
from knft.sync.daemon import Daemon
from knft.sync.lasting_problems import log_ended

if TYPE_CHECKING:
    from knft.control.objects import PodPage

log = logging.getLogger("knft")

SETTLE_LIMIT_SECONDS = 30.0
"""How long ``--once`` waits for files that another process writes."""
SETTLE_POLL_SECONDS = 0.2
POD_PAGE_BURST = 100
"""How many pages of pods commands may request at once; the requests share the rate limit of the watches."""


class ObjectFeed(Protocol):
    """Passes the objects of a source, a directory or the API server, to one daemon."""

    configures_host: bool
    """Whether knft sets conntrack's sysctls and the OOM score adjustment, as on a node of a cluster."""

    def prepare(self) -> None:
        """Read the objects that are on this machine, when no other knft process runs and before capabilities drop."""

    def start(self, daemon: Daemon, shutdown: Shutdown) -> None:
        """Pass all objects to the daemon and watch them in threads; return early on a shutdown."""

    def register_metrics(self, metrics: Metrics) -> None:
        """Add the metrics of the source to ``metrics``, and update them from now on."""

    def status(self) -> SourceStatus:
        """Return what ``knft status`` prints about the source. Any thread may call it."""

    def outages(self) -> tuple[ServerOutage, ...]:
        """Return what ``knft history`` prints about the source. Any thread may call it."""

    def list_pods(self, service: NamespacedName, token: str) -> "PodPage":
        """Return a page of the pods of a Service's endpoints, for ``knft explain``; ``token`` is that of the last page.

        Any thread may call it, and it may block; raises ApiServerError if the API server does not answer.
        """

    def is_eligible(self) -> bool:
        """Tell whether load balancers should send new connections to this node."""

    def record_event(self, event: Event) -> None:
        """Post an event to the cluster. Any thread may call it; it does not block."""


class ManifestFeed:
    """Passes the objects of a directory of manifests to the daemon; it drops events, since there is no API server.

    Until every file was read without error, the daemon removes nothing that it finds in the kernel and that may belong
    to objects that were not read.
    """

    configures_host = False

    def __init__(self, path: str) -> None:
        """Raise SourceError if the directory cannot be listed; ``prepare`` reads its files."""
        self._path = path
        self._source = DirectorySource(path)
        self._source.check_readable()
        self._initial_scan = ScanResult()
        self._reminders = Reminders()
        self._last_conditions: tuple[str, ...] = ()
        self._unknown = NOTHING_UNKNOWN
        """The objects whose rules the daemon does not remove."""

    def prepare(self) -> None:
        """Read the directory; raise SourceError if that fails."""
        self._initial_scan = self._source.scan()

    def handle_initial_objects(self, daemon: Daemon) -> None:
        """Pass the objects that ``prepare`` read to the daemon."""
        self._unknown = self._source.status.unknown
        if self._unknown:
            daemon.hold_removals(self._unknown)
        _handle_scan(daemon, self._initial_scan)

    def handle_settled_objects(self, daemon: Daemon) -> str:
        """Pass all objects to the daemon, and wait up to ``SETTLE_LIMIT_SECONDS`` for files that are being written.

        Returns why a file was not read without error, and which rules therefore stay; "" if all were.
        """
        self.handle_initial_objects(daemon)
        deadline = time.monotonic() + SETTLE_LIMIT_SECONDS
        while self._source.is_settling and time.monotonic() < deadline:
            time.sleep(SETTLE_POLL_SECONDS)
            self._scan(daemon)
        status = self._source.status
        if status.is_read and self._unknown:
            log.warning("%s", self._held_message())
        if status.is_read or not status.unknown:
            return ""
        return f"{status.incomplete_reason}; {self._kept_rules('removed no', 'kept the old')}"

    def start(self, daemon: Daemon, shutdown: Shutdown) -> None:
        """Pass all objects to the daemon, and watch the directory in a thread."""
        self.handle_initial_objects(daemon)
        if self._unknown:
            log.warning("%s", self._held_message())
        shutdown.start_thread("manifests", lambda: self._watch(daemon, shutdown))

    def _watch(self, daemon: Daemon, shutdown: Shutdown) -> None:
        for _ in self._source.watch(shutdown.stop):
            try:
                self._scan(daemon)
            except NodeMismatchError:
                raise  # The process exits, and the rules stay.
            except KnftError as error:
                log.warning("%s", error)
            conditions = self._conditions()
            log_ended(condition for condition in self._last_conditions if condition not in conditions)
            self._last_conditions = conditions
            for reminder in self._reminders.update(conditions, time.monotonic()):
                log.warning("%s", reminder)

    def _scan(self, daemon: Daemon) -> None:
        _handle_scan(daemon, self._source.scan())
        unknown = self._source.status.unknown
        if not self._unknown or unknown == self._unknown:
            return
        daemon.release_removals(unknown)
        self._unknown = unknown
        if unknown:
            log.warning("%s", self._held_message())
        else:
            log.info("all manifests were read; removing stale rules")

    def _conditions(self) -> tuple[str, ...]:
        held = (self._held_message(),) if self._unknown else ()
        return (*self._source.status.conditions, *held)

    def _held_message(self) -> str:
        kept = self._kept_rules("removes no", "keeps the old")
        return f"{self._source.status.incomplete_reason}; until this is repaired, {kept}"

    def _kept_rules(self, removes_no: str, keeps: str) -> str:
        unknown = self._source.status.unknown
        return f"knft {removes_no} rules" if unknown.anything else f"knft {keeps} rules of {unknown}"

    def register_metrics(self, metrics: Metrics) -> None:
        """Add the metrics of the directory to ``metrics``."""
        metrics.register(ManifestCollector(self._metric_values))

    def _metric_values(self) -> ManifestValues:
        status = self._source.status
        return ManifestValues(_file_counts(status), bool(status.missing or status.incomplete_reason))

    def status(self) -> SourceStatus:
        """Return the directory, and what is wrong with its manifests."""
        return SourceStatus("manifests", self._path, self._conditions(), _file_counts(self._source.status))

    def outages(self) -> tuple[ServerOutage, ...]:
        """Return nothing: a directory of manifests has no API server."""
        return ()

    def list_pods(self, service: NamespacedName, token: str) -> "PodPage":  # noqa: ARG002 - of the protocol
        """Return nothing: to read all manifests again would take too long; ``knft explain -f`` reads them."""
        from knft.control.objects import PodPage  # noqa: PLC0415 - few processes are ever asked

        return PodPage()

    def is_eligible(self) -> bool:
        """Return True: a directory of manifests has no Node that tells about eligibility."""
        return True

    def record_event(self, event: Event) -> None:
        """Drop the event: the log has the same message."""


def _file_counts(status: DirectoryStatus) -> dict[str, int]:
    return {
        "read": status.read,
        "unreadable": status.unreadable,
        "unsettled": status.unsettled,
        "missing": status.missing,
    }


def _handle_scan(daemon: Daemon, scan: ScanResult) -> None:
    for problem in scan.problems:
        log.warning("%s", problem)
    log_ended(scan.ended)
    for notice in scan.notices:
        log.info("%s", notice)
    daemon.handle(scan.changes)


class ApiServerFeed:
    """Lists and watches objects of the API server, passes them to the daemon, and posts events."""

    configures_host = True

    def __init__(self, settings: Settings) -> None:
        """Read the kubeconfig without sending a request; raise UsageError if it is invalid."""
        config = settings.config
        self._metrics: Metrics | None = None
        self._client = ApiClient(settings.client, on_response=self._record_request)
        self._node_name = config.node_name
        self._needs_pod_cidrs = config.detect_local_mode == "NodeCIDR"
        self._pod_requests = TokenBucket(1.0, POD_PAGE_BURST)
        self._event_poster = events.EventPoster(self._client, config.node_name, on_drop=self._record_dropped_event)
        self._node: OwnNode | None = None
        self._source: ApiServerSource | None = None

    def prepare(self) -> None:
        """Do nothing: ``start`` lists the objects of the API server."""

    def start(self, daemon: Daemon, shutdown: Shutdown) -> None:
        """Start to watch, and wait for the Node and all objects; raise ApiServerError without the Node."""

        def fail(message: str) -> None:
            shutdown.fail(ApiServerError(message))

        self._node = node = OwnNode(self._node_name, needs_pod_cidrs=self._needs_pod_cidrs, request_restart=fail)

        handler_lock = threading.Lock()

        def handle(changes: Iterable[ObjectChange]) -> None:
            with handler_lock:
                # The filter comes first: changes that restart the process must not cause a sync.
                daemon.handle(node.filter_changes(changes))

        self._source = source = ApiServerSource(
            self._client,
            self._node_name,
            handle,
            on_failure=shutdown.fail,
            on_invalid_service=self._record_skipped_service,
        )
        log.info("watching %s as node %s", without_credentials(self._client.server), self._node_name)
        source.start(shutdown.stop)
        self._event_poster.start(shutdown.stop)
        ready = node.wait_ready(
            shutdown.stop, lambda: _node_problem(source), describe_nodes=lambda: describe_nodes(self._client)
        )
        if ready is not None:
            # ``filter_changes`` has seen the Node, but ``daemon.handle`` may still run with it, holding the lock.
            # The first sync must not start before that call returns: rules depend on the Node's addresses and zone.
            with handler_lock:
                pass
            source.wait_all_listed()

    def register_metrics(self, metrics: Metrics) -> None:
        """Count requests by host and port, as client-go does, in ``metrics`` from now on."""
        self._metrics = metrics

    def _record_request(self, code: str, method: str, server: str, seconds: float) -> None:
        if self._metrics is not None:
            host = without_credentials(server).partition("://")[2].partition("/")[0]
            self._metrics.observe_api_request(code, method, host, seconds)

    def _record_dropped_event(self) -> None:
        if self._metrics is not None:
            self._metrics.count_dropped_event()

    def status(self) -> SourceStatus:
        """Return the server, and why resources cannot be watched."""
        source, server = self._source, without_credentials(self._client.server)
        if source is None:
            return SourceStatus("API server", server, unlisted=WATCHED_RESOURCES)
        return SourceStatus(
            "API server",
            server,
            source.problems(),
            unlisted=source.unlisted(),
            unwatched_seconds=source.unwatched_seconds(),
            last_message_age=source.last_message_age(),
        )

    def outages(self) -> tuple[ServerOutage, ...]:
        """Return when the server or a resource could not be watched, and why."""
        return self._source.outages() if self._source is not None else ()

    def list_pods(self, service: NamespacedName, token: str) -> "PodPage":
        """Request a page of the pods of a Service's endpoints."""
        from knft.apiserver.endpoint_pods import list_pods  # noqa: PLC0415 - few processes are ever asked

        if not self._pod_requests.allow(time.monotonic()):
            msg = f"knft requests {POD_PAGE_BURST} pages of pods at once, and one a second; run the command again"
            raise ApiServerError(msg)
        return list_pods(self._client, service, token)

    def is_eligible(self) -> bool:
        """Return whether the Node exists and is not being removed."""
        return self._node is not None and self._node.eligible

    def _record_skipped_service(self, service: NamespacedName, reason: str) -> None:
        self.record_event(failed_to_program_event(service, f"on node {self._node_name}: {reason}"))

    def record_event(self, event: Event) -> None:
        """Post an event to the cluster. Any thread may call it; it does not block."""
        self._event_poster.post(event)


def _node_problem(source: ApiServerSource) -> str:
    """Return the error of the watch of Nodes, "" if Nodes are listed."""
    return source.problem("nodes") or ("" if source.has_listed("nodes") else "the API server has not answered yet")
