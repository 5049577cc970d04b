"""A ClusterSource at work on a test's server, whose pauses pass quickly."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from knft.apiserver.access import Pod
from knft.apiserver.connection import Connection
from knft.apiserver.course import Times
from knft.apiserver.source import ClusterSource
from knft.apiserver.wire import Timing
from knft.configuration.settings import ClientSettings
from knft.model.names import NamespacedName
from knft.model.objects import Change, KubeObject
from tests.apiserver.answers import HUNG
from tests.apiserver.cluster import Cluster, endpoint_slice, node, service, service_cidr
from tests.apiserver.server import ApiServer

NODE = "node-1"
HURRY = 40.0
"""So much faster than the world pauses pass here."""


class HurriedStop(threading.Event):
    """An event on which short pauses are waited, and that knows them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[tuple[str, float]] = []
        """The thread that paused, and for how many seconds."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        self.pauses.append((threading.current_thread().name, timeout))
        return super().wait(timeout / HURRY)

    def of(self, thread: str) -> list[float]:
        return [seconds for name, seconds in list(self.pauses) if name == thread]


class Mirror:
    """What the changes amount to, each held to the one before."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.objects: dict[tuple[str, NamespacedName], KubeObject] = {}
        self.changes: list[Change] = []
        self.batches: list[int] = []
        self.wrong: list[str] = []

    def handle(self, changes: Iterable[Change]) -> None:
        taken = list(changes)
        with self.condition:
            self.batches.append(len(taken))
            for change in taken:
                self._take(change)
            self.condition.notify_all()

    def _take(self, change: Change) -> None:
        found = change.current or change.previous
        assert found is not None
        key = (type(found).__name__, found.key)
        if self.objects.get(key) != change.previous:
            self.wrong.append(f"{key}: {change.previous} was not what was there")
        if change.previous == change.current:
            self.wrong.append(f"{key}: a change that changes nothing")
        self.objects.pop(key, None)
        if change.current is not None:
            self.objects[key] = change.current
        self.changes.append(change)

    def names(self, kind: str = "Service") -> set[str]:
        with self.condition:
            return {key.name for sort, key in self.objects if sort == kind}

    def wait(self, met: Callable[[], bool], what: str) -> None:
        with self.condition:
            assert self.condition.wait_for(met, HUNG), f"never: {what}; there is {list(self.objects)}"

    def wait_names(self, *names: str, kind: str = "Service") -> None:
        self.wait(lambda: self.names(kind) == set(names), f"{names}")


class Following:
    """A source, what it reports, and what stops it."""

    def __init__(
        self, source: ClusterSource, connection: Connection, stop: HurriedStop, mirror: Mirror, times: Times
    ) -> None:
        self.source = source
        self.times = times
        self.connection = connection
        self.stop = stop
        self.mirror = mirror

    def until(self, met: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        until(met, what)


def until(met: Callable[[], Any], what: str) -> None:
    """Wait until something holds; fail where it never does."""
    deadline = time.monotonic() + HUNG
    while not met():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)


QUICK = Timing(connect=2.0, answer=1.0, idle=1, interval=1, unacknowledged=3.0)
SHORT = Times(shortest_watch=300.0, longest_watch=600.0, grace=30.0, listing=1.0, missing=40.0, brief=0.02)


@contextmanager
def following(
    server: ApiServer | str,
    *,
    settings: ClientSettings | None = None,
    pod: Pod | None = None,
    times: Times = SHORT,
    timing: Timing = QUICK,
    draw: Callable[[], float] = lambda: 0.5,
    handle: Callable[[Iterable[Change]], None] | None = None,
) -> Iterator[Following]:
    """Follow a server; all that was begun has to end by itself when the test is over, and changes to be in order."""
    url = server if isinstance(server, str) else server.url
    default = ClientSettings(server="" if pod else url, qps=0)
    connection = Connection(settings or default, timing=timing, pod=pod)
    mirror, stop = Mirror(), HurriedStop()
    source = ClusterSource(connection, NODE, handle or mirror.handle, draw=draw, times=times)
    source.start(stop)
    try:
        yield Following(source, connection, stop, mirror, times)
    finally:
        stop.set()
        assert source.join(HUNG), "threads go on after stop was set"
        assert source.failure is None, source.failure
        assert not mirror.wrong, mirror.wrong


def small() -> Cluster:
    cluster = Cluster()
    cluster.put("services", service("web", 1))
    cluster.put("services", service("shop", 2))
    cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.0.1", "10.244.0.2"))
    cluster.put("servicecidrs", service_cidr("kubernetes", "10.96.0.0/16"))
    cluster.put("nodes", node(NODE, "192.0.2.11"))
    cluster.put("nodes", node("node-2", "192.0.2.12"))
    return cluster
