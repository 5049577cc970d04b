"""Where ``knft run`` has its objects from: a directory of manifests, or the API server."""

import logging
import threading
from collections.abc import Iterable
from typing import Protocol

from knft.apiserver import events
from knft.apiserver.address import without_credentials
from knft.apiserver.connection import Connection
from knft.apiserver.node import OwnNode
from knft.apiserver.source import ClusterSource
from knft.cli.ending import Ending
from knft.configuration.settings import Settings
from knft.errors import ClusterError, KnftError
from knft.model.names import NamespacedName
from knft.model.objects import Change
from knft.serve.events import Event, about_left_out
from knft.serve.metrics import Metrics
from knft.source.directory import DirectorySource, Scan
from knft.sync.daemon import Daemon

log = logging.getLogger("knft")


class Feed(Protocol):
    """A source of objects, for one daemon."""

    sets_up_machine: bool
    """Whether this is a node of a cluster, whose conntrack and memory settings are knft's to make."""

    def start(self, daemon: Daemon, ending: Ending) -> None:
        """Hand over all objects there are, then follow them; return where ``ending`` comes first, too."""

    def count_requests(self, metrics: Metrics) -> None:
        """Have requests to an API server counted."""

    def is_eligible(self) -> bool:
        """Tell whether load balancers should send new connections to this node."""

    def tell(self, event: Event) -> None:
        """Have the cluster's people told of something; from any thread, without waiting."""


class DirectoryFeed:
    """A directory of manifests, and nobody to be told of anything."""

    sets_up_machine = False

    def __init__(self, path: str) -> None:
        """Read the directory; raise SourceError where there is none."""
        self._source = DirectorySource(path)
        self._first = self._source.scan()

    def take_in(self, daemon: Daemon) -> None:
        """Hand over what the directory has held at the beginning."""
        _take_in(daemon, self._first)

    def start(self, daemon: Daemon, ending: Ending) -> None:
        """Follow the directory in a thread of its own."""
        self.take_in(daemon)
        ending.thread("manifests", lambda: self._follow(daemon, ending))

    def _follow(self, daemon: Daemon, ending: Ending) -> None:
        for _ in self._source.watch(ending.stop):
            try:
                _take_in(daemon, self._source.scan())
            except KnftError as error:
                log.warning("%s", error)

    def count_requests(self, metrics: Metrics) -> None:
        """Have nothing to count."""

    def is_eligible(self) -> bool:
        """Tell that it is: manifests say nothing of that."""
        return True

    def tell(self, event: Event) -> None:
        """Tell nobody: what matters is in the log as well."""


def _take_in(daemon: Daemon, scan: Scan) -> None:
    for problem in scan.problems:
        log.warning("%s", problem)
    for remark in scan.remarks:
        log.info("%s", remark)
    daemon.handle(scan.changes)


class ClusterFeed:
    """The API server."""

    sets_up_machine = True

    def __init__(self, settings: Settings) -> None:
        """Read how it is reached, and ask nothing; raise UsageError where that cannot be meant."""
        config = settings.config
        self._connection = Connection(settings.client)
        self._node_name = config.node_name
        self._by_pod_cidrs = config.detect_local_mode == "NodeCIDR"
        self._poster = events.EventPoster(self._connection, config.node_name)
        self._node: OwnNode | None = None

    def start(self, daemon: Daemon, ending: Ending) -> None:
        """Wait for the own Node and all that rules come from, and follow them; raise ClusterError without a Node."""

        def end(why: str) -> None:
            ending.fail(ClusterError(why))

        self._node = node = OwnNode(self._node_name, by_pod_cidrs=self._by_pod_cidrs, end=end)

        handing_on = threading.Lock()

        def handle(changes: Iterable[Change]) -> None:
            with handing_on:
                # First, so that no sync comes of what the process ends by.
                daemon.handle(node.take(changes))

        source = ClusterSource(
            self._connection, self._node_name, handle, failed=ending.fail, left_out=self._tell_left_out
        )
        log.info("following %s as node %s", without_credentials(self._connection.server), self._node_name)
        source.start(ending.stop)
        self._poster.start(ending.stop)
        if node.wait_ready(ending.stop, lambda: _why_no_node(source)) is not None:
            with handing_on:
                pass  # The daemon has it now, too: without its addresses and its zone, rules would be others.
            source.wait_synced()

    def count_requests(self, metrics: Metrics) -> None:
        """Have requests counted by the server's name and port, as client-go has it."""

        def count(code: str, method: str, server: str, seconds: float) -> None:
            metrics.api_request(
                code, method, without_credentials(server).partition("://")[2].partition("/")[0], seconds
            )

        self._connection.answered = count

    def is_eligible(self) -> bool:
        """Tell whether the Node is there and not about to go."""
        return self._node is not None and self._node.eligible

    def _tell_left_out(self, service: NamespacedName, why: str) -> None:
        self.tell(about_left_out(service, f"on node {self._node_name}: {why}"))

    def tell(self, event: Event) -> None:
        """Have an event posted."""
        regarding = events.Regarding(event.kind, event.name, event.namespace, event.uid)
        self._poster.post(
            events.Event(regarding, event.reason, event.action, event.note, warning=event.type == "Warning")
        )


def _why_no_node(source: ClusterSource) -> str:
    """Return why nobody knows what the Node lacks, "" where it is known."""
    return source.trouble("nodes") or ("" if source.listed("nodes") else "the API server has not answered yet")
