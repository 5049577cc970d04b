"""Changes of a cluster that are measured, as steps; each step has some Services before and after it."""

from collections.abc import Callable, Iterator, Mapping

from msgspec import structs

from tests.bench.cluster import Cluster, ServiceSpec, Shape

Step = tuple[tuple[ServiceSpec | None, ServiceSpec], ...]

SERVICES_PER_BULK_CHANGE = 100
# A prime larger than every cluster, so that the steps change all Services before any is changed again.
_STRIDE = 100_003


def replace_endpoint(cluster: Cluster, number: int) -> Step:
    """Replace one endpoint of a Service."""
    return (_replace_one_endpoint(cluster, _chosen(cluster, number), number),)


def replace_endpoint_of_another(cluster: Cluster, turn: int) -> Step:
    """Replace one endpoint of a Service that is not the first one."""
    return (_replace_one_endpoint(cluster, 1 + (turn * _STRIDE) % (cluster.shape.services - 1), turn),)


def add_service(cluster: Cluster, _turn: int) -> Step:
    """Add a Service with its endpoints."""
    return ((None, cluster.build_service(cluster.size, cluster.new_endpoints(cluster.shape.endpoints))),)


def scale_by_one(cluster: Cluster, turn: int) -> Step:
    """Add an endpoint to a Service, and in the next step remove one from its middle."""
    before = cluster.service(_chosen(cluster, turn // 2))
    if turn % 2:
        middle = len(before.endpoints) // 2
        endpoints = before.endpoints[:middle] + before.endpoints[middle + 1 :]
    else:
        endpoints = before.endpoints + cluster.new_endpoints(1)
    return ((before, _with_endpoints(before, endpoints)),)


def change_many(cluster: Cluster, turn: int) -> Step:
    """Replace one endpoint in each of 100 Services."""
    count = min(SERVICES_PER_BULK_CHANGE, cluster.shape.services)
    start = turn * _STRIDE
    return tuple(
        _replace_one_endpoint(cluster, (start + index * cluster.shape.services // count) % cluster.shape.services, turn)
        for index in range(count)
    )


ANOTHER_REPLACED = "endpoint of another Service replaced"
KINDS: Mapping[str, Callable[[Cluster, int], Step]] = {
    "endpoint replaced": replace_endpoint,
    ANOTHER_REPLACED: replace_endpoint_of_another,
    "Service added": add_service,
    "scaled by one": scale_by_one,
    "100 changed at once": change_many,
}


def kinds(shape: Shape) -> tuple[str, ...]:
    """Return the kinds of change to measure; if the first Service differs, also a change beside it."""
    return tuple(kind for kind in KINDS if kind != ANOTHER_REPLACED or shape.first_endpoints)


def steps(cluster: Cluster, kind: str, count: int, first: int = 0) -> Iterator[Step]:
    """Apply ``count`` steps of a kind to the cluster, from number ``first`` on, and yield each."""
    for turn in range(first, first + count):
        step = KINDS[kind](cluster, turn)
        for _, after in step:
            cluster.put(after)
        yield step


def _chosen(cluster: Cluster, turn: int) -> int:
    """Return the number of the Service to change; always the first one if its size differs from all others."""
    return 0 if cluster.shape.first_endpoints else (turn * _STRIDE) % cluster.shape.services


def _replace_one_endpoint(cluster: Cluster, number: int, turn: int) -> tuple[ServiceSpec, ServiceSpec]:
    before = cluster.service(number)
    endpoints = list(before.endpoints)
    endpoints[turn % len(endpoints)] = cluster.new_endpoints(1)[0]
    return before, _with_endpoints(before, tuple(endpoints))


def _with_endpoints(service: ServiceSpec, endpoints: tuple[int, ...]) -> ServiceSpec:
    return structs.replace(service, endpoints=endpoints)
