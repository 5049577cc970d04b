"""The Services of the migrations: four keep their endpoints, one gets other endpoints again and again."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from tests.cluster.api import Api
from tests.packets.churn import SERVICES, Backend, Pool, slices_between
from tests.packets.frontends import CLIENTS, Frontend, frontends
from tests.packets.timeline import Timeline
from tests.parity.marker import Marker
from tests.parity.random_cluster import Cluster, manifests
from tests.support.lab.clients import ClientTarget
from tests.support.scenario import Scenario

CHANGED = "cluster-policy"
HEALTH_CHECK_NODE_PORT = 19071
"""Below the ports that the client processes bind to."""
_HAS_HEALTH_CHECK = "external-local"
_TARGET_PORTS = (8080, 8081)
_POOLS: tuple[Pool, Pool] = (
    tuple(Backend(pod, port) for pod in ("local-1", "remote-1") for port in _TARGET_PORTS),
    tuple(Backend(pod, port) for pod in ("local-2", "local-4", "remote-2") for port in _TARGET_PORTS),
)
"""Two pools without a common endpoint: a connection by an old rule shows."""
_STICKY_CLIENTS = 4
"""Client addresses in each family: few, so that each connects again and again."""


def objects() -> list[dict[str, Any]]:
    """Return the Node, the Services and their EndpointSlices as an API server accepts them."""
    items = [
        item for service in SERVICES for item in (service.manifest(), *slices_between(service.name, (), _POOLS[0]))
    ]
    for item in items:
        if item["kind"] == "Service" and item["metadata"]["name"] == _HAS_HEALTH_CHECK:
            item["spec"]["healthCheckNodePort"] = HEALTH_CHECK_NODE_PORT
    return [*manifests(Cluster((), zone="")), *_without_node(Scenario("", items, ()).manifests())]


def _without_node(items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (item for item in items if item["kind"] != "Node")


def all_frontends() -> dict[str, list[Frontend]]:
    """Return the frontends that each client connects to."""
    return {client: frontends(client) for client in CLIENTS}


def target(frontend: Frontend) -> ClientTarget:
    """Return the address to connect to, with few addresses of sticky clients."""
    return frontend.target._replace(sources=frontend.target.sources[:_STICKY_CLIENTS])


class Endpoints:
    """The endpoints of all Services over time."""

    def __init__(self, api: Api, marker: Marker) -> None:
        """All Services have the first pool."""
        self._api, self._marker = api, marker
        self._current, self._other = _POOLS
        self._changed_at: float | None = None
        self.timelines = {service.name: Timeline() for service in SERVICES}
        for timeline in self.timelines.values():
            timeline.record(time.monotonic(), self._current, time.monotonic())

    @property
    def is_pending(self) -> bool:
        """Whether the last change has not been reported as being in force."""
        return self._changed_at is not None

    def replace(self) -> None:
        """Replace all endpoints of one Service, and write the marker."""
        self._changed_at = time.monotonic()
        items = slices_between(CHANGED, self._current, self._other)
        for item in _without_node(Scenario("", list(items), ()).manifests()):
            self._api.replace({**item, "metadata": {**item["metadata"], "namespace": "default"}})
        self._current, self._other = self._other, self._current
        self._marker.write("")

    def in_force(self) -> None:
        """Record that new connections get the endpoints of the last change from now on."""
        if self._changed_at is not None:
            self.timelines[CHANGED].record(self._changed_at, self._current, time.monotonic())
        self._changed_at = None
