"""An ApiServerSource that watches a test's server, with shortened delays."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from knft.apiserver.api_client import ApiClient
from knft.apiserver.in_cluster import PodEnvironment
from knft.apiserver.list_watch import WatchTimeouts
from knft.apiserver.sockets import Timeouts
from knft.apiserver.source import ApiServerSource
from knft.configuration.settings import ClientSettings
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ObjectChange
from tests.support import waiting
from tests.support.fake_api.cluster import FakeCluster, endpoint_slice, node, service, service_cidr
from tests.support.fake_api.responses import TEST_TIMEOUT
from tests.support.fake_api.server import FakeApiServer

NODE = "node-1"
SPEEDUP = 40.0
"""The factor by which delays are shortened."""


class AcceleratedStopEvent(threading.Event):
    """A stop event that shortens waits and records them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[tuple[str, float]] = []
        """The name of the thread that waited, and the seconds before they were shortened."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        self.pauses.append((threading.current_thread().name, timeout))
        return super().wait(timeout / SPEEDUP)

    def pauses_of(self, thread: str) -> list[float]:
        return [seconds for name, seconds in list(self.pauses) if name == thread]


class ChangeRecorder:
    """Applies changes to a copy of the objects, and checks that each starts from the current object."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.objects: dict[tuple[str, NamespacedName], KubeObject] = {}
        self.received: list[ObjectChange] = []
        self.batches: list[int] = []
        self.errors: list[str] = []

    def handle(self, changes: Iterable[ObjectChange]) -> None:
        taken = list(changes)
        with self.condition:
            self.batches.append(len(taken))
            for change in taken:
                self._check_and_apply(change)
            self.condition.notify_all()

    def _check_and_apply(self, change: ObjectChange) -> None:
        found = change.current or change.previous
        assert found is not None
        key = (type(found).__name__, found.key)
        if self.objects.get(key) != change.previous:
            self.errors.append(f"{key}: {change.previous} is not the current object")
        if change.previous == change.current:
            self.errors.append(f"{key}: a change without a difference")
        self.objects.pop(key, None)
        if change.current is not None:
            self.objects[key] = change.current
        self.received.append(change)

    def names(self, kind: str = "Service") -> set[str]:
        with self.condition:
            return {key.name for sort, key in self.objects if sort == kind}

    def wait(self, condition: Callable[[], bool], description: str) -> None:
        with self.condition:
            assert self.condition.wait_for(condition, TEST_TIMEOUT), (
                f"timeout: {description}; objects: {list(self.objects)}"
            )

    def wait_names(self, *names: str, kind: str = "Service") -> None:
        self.wait(lambda: self.names(kind) == set(names), f"{names}")


class RunningSource:
    """A source, its changes, and the event that stops it."""

    def __init__(
        self,
        source: ApiServerSource,
        client: ApiClient,
        stop: AcceleratedStopEvent,
        recorder: ChangeRecorder,
        times: WatchTimeouts,
    ) -> None:
        self.source = source
        self.timeouts = times
        self.client = client
        self.stop = stop
        self.changes = recorder

    def wait_until(self, condition: Callable[[], Any], description: str) -> None:
        """Wait until a condition holds."""
        wait_until(condition, description)


def wait_until(condition: Callable[[], Any], description: str) -> None:
    """Wait until a condition holds; fail if it never does."""
    waiting.wait_until(condition, f"timeout: {description}")


SHORT_TIMEOUTS = Timeouts(connect=2.0, response=1.0, keepalive_idle=1, keepalive_interval=1, unacknowledged=3.0)
SHORT_WATCH_TIMEOUTS = WatchTimeouts(
    min_watch=300.0, max_watch=600.0, idle_grace=30.0, list_idle=1.0, missing_resource_retry=40.0, short_lived=0.02
)


@contextmanager
def running_source(
    server: FakeApiServer | str,
    *,
    settings: ClientSettings | None = None,
    in_cluster: PodEnvironment | None = None,
    watch_timeouts: WatchTimeouts = SHORT_WATCH_TIMEOUTS,
    timeouts: Timeouts = SHORT_TIMEOUTS,
    random_fraction: Callable[[], float] = lambda: 0.5,
    handle_changes: Callable[[Iterable[ObjectChange]], None] | None = None,
) -> Iterator[RunningSource]:
    """List and watch a server during the block; check afterwards that all threads have ended.

    ``ChangeRecorder`` has checked that the previous object of each change was the current one.
    """
    url = server if isinstance(server, str) else server.url
    default = ClientSettings(server="" if in_cluster else url, qps=0)
    client = ApiClient(settings or default, timeouts=timeouts, in_cluster=in_cluster)
    recorder, stop, failures = ChangeRecorder(), AcceleratedStopEvent(), list[Exception]()
    source = ApiServerSource(
        client,
        NODE,
        handle_changes or recorder.handle,
        on_failure=failures.append,
        random_fraction=random_fraction,
        timeouts=watch_timeouts,
    )
    source.start(stop)
    try:
        yield RunningSource(source, client, stop, recorder, watch_timeouts)
    finally:
        stop.set()
        assert source.join(TEST_TIMEOUT), "threads are still running after stop was set"
        assert not failures, failures
        assert not recorder.errors, recorder.errors


def two_service_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.put("services", service("web", 1))
    cluster.put("services", service("shop", 2))
    cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.0.1", "10.244.0.2"))
    cluster.put("servicecidrs", service_cidr("kubernetes", "10.96.0.0/16"))
    cluster.put("nodes", node(NODE, "192.0.2.11"))
    cluster.put("nodes", node("node-2", "192.0.2.12"))
    return cluster
