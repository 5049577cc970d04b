"""Finds a smaller history that still differs: fewer clusters, Services, slices, endpoints and unusual fields."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.parity.random_cluster import Cluster, Endpoint, History, Service, Settings, Slice

MAX_RUNS = 60
"""How many histories ``shrink`` tries."""


def shrink(history: History, differs: Callable[[History], bool], max_runs: int = MAX_RUNS) -> History:
    """Return the smallest history found that still differs; ``history`` itself if none of the tried ones does."""
    runs = 0
    found = True
    while found:
        found = False
        for candidate in smaller(history):
            if runs == max_runs:
                return history
            runs += 1
            if differs(candidate):
                history, found = candidate, True
                break
    return history


def smaller(history: History) -> Iterator[History]:
    """Yield smaller histories, the smallest first: parts of the clusters, then of each Service."""
    clusters = history.clusters
    for count in range(1, len(clusters)):
        yield replace(history, clusters=clusters[-count:])
    for number in _numbers(clusters):
        yield _mapped(history, lambda service, number=number: None if service.number == number else service)  # type: ignore[misc]
    if history.settings != Settings():
        yield replace(history, settings=Settings())
    for number in _numbers(clusters):
        for change in _CHANGES:
            yield from _changed(history, number, change)
    yield from _changed_in_last(history)


def _numbers(clusters: tuple[Cluster, ...]) -> list[int]:
    return sorted({service.number for cluster in clusters for service in cluster.services})


def _mapped(history: History, change: Callable[[Service], Service | None]) -> History:
    """Return the history with each Service of each cluster changed, or removed."""
    clusters = tuple(
        replace(cluster, services=tuple(new for service in cluster.services if (new := change(service)) is not None))
        for cluster in history.clusters
    )
    return replace(history, clusters=clusters)


_CHANGES: tuple[Callable[[Service], Service], ...] = (
    lambda service: replace(service, slices=()),
    lambda service: replace(service, type="ClusterIP"),
    lambda service: replace(service, has_external_ips=False),
    lambda service: replace(service, ingress=""),
    lambda service: replace(service, ranges=()),
    lambda service: replace(service, ranges=service.ranges[:1]),
    lambda service: replace(service, affinity_seconds=0),
    lambda service: replace(service, affinity_seconds=min(service.affinity_seconds, 600)),
    lambda service: replace(service, internal_policy="Cluster"),
    lambda service: replace(service, external_policy="Cluster"),
    lambda service: replace(service, allocates_node_ports=True),
    lambda service: replace(service, ports=service.ports[:1]),
    lambda service: replace(service, ports=service.ports[1:] or service.ports),
    lambda service: replace(service, families=service.families[:1]),
    lambda service: replace(service, families=service.families[1:] or service.families),
)


def _changed(history: History, number: int, change: Callable[[Service], Service]) -> Iterator[History]:
    changed = _mapped(history, lambda service: _matching(change(service)) if service.number == number else service)
    if changed != history:
        yield changed


def _matching(service: Service) -> Service:
    """Return a Service whose slices have only its ports and families."""
    slices = tuple(
        replace(one, ports=tuple(name for name in one.ports if name in service.ports))
        for one in service.slices
        if one.family in service.families
    )
    return replace(service, slices=slices)


def _changed_in_last(history: History) -> Iterator[History]:
    """Yield histories with one slice or endpoint less, or an endpoint without unusual fields, in the last cluster."""
    *before, last = history.clusters
    for position, service in enumerate(last.services):
        for slices in _smaller_slices(service.slices):
            services = (*last.services[:position], replace(service, slices=slices), *last.services[position + 1 :])
            yield replace(history, clusters=(*before, replace(last, services=services)))


def _smaller_slices(slices: tuple[Slice, ...]) -> Iterator[tuple[Slice, ...]]:
    for position, one in enumerate(slices):
        yield (*slices[:position], *slices[position + 1 :])
        for number, endpoint in enumerate(one.endpoints):
            rest = (*one.endpoints[:number], *one.endpoints[number + 1 :])
            yield (*slices[:position], replace(one, endpoints=rest), *slices[position + 1 :])
            usual = Endpoint(endpoint.host)
            if endpoint != usual:
                simple = (*one.endpoints[:number], usual, *one.endpoints[number + 1 :])
                yield (*slices[:position], replace(one, endpoints=simple), *slices[position + 1 :])
