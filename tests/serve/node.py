"""A node with rules in a real kernel and HTTP servers on real ports, which syncs when the test calls for it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from knft.config import Config
from knft.configuration.settings import Settings
from knft.families import Family
from knft.kernel.table import KernelTable
from knft.model.events import Event, ObjectReference
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ObjectChange
from knft.runner.bounded import Intervals
from knft.serve.monitoring import Monitoring
from knft.serve.proxy_health import ProxyHealth
from knft.sync.daemon import Daemon
from knft.sync.older_version import OlderVersion
from tests.support.fake_clock import FakeClock
from tests.support.fake_timestamps import FakeTimestamps
from tests.support.http_client import TIMEOUT_SECONDS, HttpResponse, http_request
from tests.support.kernel_harness import CONFIG, KernelHarness
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in

HEALTH, METRICS = 10256, 10249
LOOPBACK = "127.0.0.1"


class MonitoredNode(KernelHarness):
    """A Daemon with the Proxiers of both families, and the observers and servers of a process; a context manager."""

    def __init__(self, namespace: Namespace, config: Config = CONFIG, **settings: Any) -> None:
        self.sync_clock = FakeClock()
        super().__init__(namespace, config, clock=self.sync_clock)
        self.clock = FakeTimestamps()
        self.events: list[Event] = []
        self.eligible = True
        self.monitoring = Monitoring(
            Settings(config, **settings),
            ProxyHealth(config.sync_period, self.clock),
            node_eligible=lambda: self.eligible,
            on_event=self.events.append,
            on_fatal_listen_error=lambda message: self.events.append(
                Event(ObjectReference("Node", ""), "", "", message)
            ),
            clock=self.clock,
        )
        proxiers = tuple(self.proxiers.values())
        self.daemon = Daemon(
            proxiers,
            self.dispatcher,
            self._auditor,
            self.monitoring.observers_with(),
            older_versions={family: OlderVersion("rules-00000001", lambda: frozenset({7})) for family in Family},
            intervals=Intervals(0, 0.02, 3600),
        )
        self.dropped_log_lines = 0
        self.monitoring.register_counters(self.daemon, library_in(namespace)._process, lambda: self.dropped_log_lines)

    @contextmanager
    def _auditor(self, family: Family) -> Iterator[KernelTable]:
        yield self.tables[family]

    def __enter__(self) -> Self:
        for observer in self.monitoring.observers_with():
            for family in Family:
                observer.loop_started(family)
        self.monitoring.start()
        self.wait_for_http_thread()
        return self

    def __exit__(self, *_: object) -> None:
        self.monitoring.stop()

    def change(self, changes: Iterable[tuple[str, str, KubeObject | None]]) -> None:
        """Pass changes to the daemon, which passes them to its trackers and its observers."""
        for kind, name, current in changes:
            previous = self._objects.pop((kind, name), None)
            if current is not None:
                self._objects[kind, name] = current
            self.daemon.handle([ObjectChange(previous, current)])

    def apply_and_sync(self, *items: dict[str, Any]) -> None:
        """Create or change objects, sync, and wait until the HTTP servers have the changes."""
        self.apply(*items)
        assert self.daemon.sync()
        self.wait_for_http_thread()

    def wait_for_http_thread(self) -> None:
        """Wait until the HTTP thread has run the callbacks that are scheduled so far."""
        done = threading.Event()
        self.monitoring._thread.call_soon(done.set)
        assert done.wait(TIMEOUT_SECONDS)

    def scrape(self, path: str = "/metrics") -> dict[str, float]:
        """Return the value of every series."""
        return read_series(self.get(METRICS, path).body.decode())

    def get(self, port: int, path: str = "/") -> HttpResponse:
        """Send a GET request to a port on loopback."""
        return http_request(LOOPBACK, port, path)


def read_series(text: str) -> dict[str, float]:
    """Return the values of metrics in text format, by name and labels."""
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def load_balancer_service(name: str, port: int, number: int = 10, **spec: Any) -> dict[str, Any]:
    """Return a LoadBalancer Service with two ports and a health check port."""
    addresses = [f"10.96.{number // 256}.{number % 256}", f"fd00:10:96::{number}"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": addresses[0],
            "clusterIPs": addresses,
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [{"name": "http", "port": 80}, {"name": "more", "port": 81}],
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": port,
            **spec,
        },
    }


def default_service_name(name: str) -> NamespacedName:
    """Return the name of a Service in the namespace default, where the harness creates Services."""
    return NamespacedName("default", name)
