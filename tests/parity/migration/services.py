"""The Services of the migrations: four keep their endpoints, one gets other endpoints again and again."""

from collections.abc import Iterable, Iterator
from typing import Any

from tests.parity.random_cluster import Cluster, manifests
from tests.support.lab.clients import ClientTarget
from tests.support.packets.churn import SERVICES, Backend, Pool, slices_between
from tests.support.packets.frontends import CLIENTS, Frontend, frontends
from tests.support.scenario import Scenario

CHANGED = "cluster-policy"
HEALTH_CHECK_NODE_PORT = 19071
"""Below the ports that the client processes bind to."""
_HAS_HEALTH_CHECK = "external-local"
_TARGET_PORTS = (8080, 8081)
POOLS: tuple[Pool, Pool] = (
    tuple(Backend(pod, port) for pod in ("local-1", "remote-1") for port in _TARGET_PORTS),
    tuple(Backend(pod, port) for pod in ("local-2", "local-4", "remote-2") for port in _TARGET_PORTS),
)
"""Two pools without a common endpoint: a connection by an old rule shows."""
_STICKY_CLIENTS = 4
"""Client addresses in each family: few, so that each connects again and again."""


def objects() -> list[dict[str, Any]]:
    """Return the Node, the Services and their EndpointSlices as an API server accepts them."""
    items = [item for service in SERVICES for item in (service.manifest(), *slices_between(service.name, (), POOLS[0]))]
    for item in items:
        if item["kind"] == "Service" and item["metadata"]["name"] == _HAS_HEALTH_CHECK:
            item["spec"]["healthCheckNodePort"] = HEALTH_CHECK_NODE_PORT
    return [*manifests(Cluster((), zone="")), *without_node(Scenario("", items, ()).manifests())]


def without_node(items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the objects that are not the Node which every scenario has."""
    return (item for item in items if item["kind"] != "Node")


def all_frontends() -> dict[str, list[Frontend]]:
    """Return the frontends that each client connects to."""
    return {client: frontends(client) for client in CLIENTS}


def target(frontend: Frontend) -> ClientTarget:
    """Return the address to connect to, with few addresses of sticky clients."""
    return frontend.target._replace(sources=frontend.target.sources[:_STICKY_CLIENTS])
