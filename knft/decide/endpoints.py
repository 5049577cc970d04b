"""Selection of endpoints for each traffic policy, as kube-proxy's CategorizeEndpoints (docs/behaviour/endpoints.md)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from knft.model.endpoint import Endpoint, endpoint_is_ready
from knft.model.plan import CategorizedEndpoints
from knft.model.service_port import ServicePort

Endpoints = tuple[Endpoint, ...]
_EndpointFilter = Callable[[Endpoint], bool]


def categorize_endpoints(endpoints: Endpoints, port: ServicePort, node_name: str, zone: str) -> CategorizedEndpoints:
    """Select the endpoints of ``port`` for a node in ``zone`` ("" if the node has no zone label)."""
    cluster: Endpoints = ()
    hint_filter: _EndpointFilter | None = None
    if port.uses_cluster_endpoints:
        ready = list(filter(endpoint_is_ready, endpoints))
        hint_filter = _hint_filter(ready, node_name, zone)
        # The same tuple if all are in it, because that takes no memory.
        cluster = endpoints if hint_filter is None and len(ready) == len(endpoints) else _chosen(ready, hint_filter)
        # The fallback to terminating endpoints ignores hints: a distant endpoint is better than none.
        cluster = cluster or tuple(e for e in endpoints if _is_serving_terminating(e))
    if not port.uses_local_endpoints:
        return CategorizedEndpoints(cluster, (), cluster, bool(cluster))

    local_ready = tuple(e for e in endpoints if e.traits.is_local and e.traits.ready)
    local = local_ready or tuple(e for e in endpoints if e.traits.is_local and _is_serving_terminating(e))
    has_any = bool(cluster) or any(e.traits.ready or _is_serving_terminating(e) for e in endpoints)
    if not port.uses_cluster_endpoints:
        return CategorizedEndpoints((), local, local, has_any)
    local_is_subset = hint_filter is None and (bool(local_ready) or not local)
    reachable = cluster if local_is_subset else _union(cluster, local)
    return CategorizedEndpoints(cluster, local, reachable, has_any)


def _chosen(endpoints: Iterable[Endpoint], hint_filter: _EndpointFilter | None) -> Endpoints:
    return tuple([endpoint for endpoint in endpoints if hint_filter is None or hint_filter(endpoint)])


def _is_serving_terminating(endpoint: Endpoint) -> bool:
    return endpoint.traits.serving and endpoint.traits.terminating


def _union(first: Iterable[Endpoint], second: Iterable[Endpoint]) -> Endpoints:
    by_key = {endpoint.key: endpoint for endpoint in (*first, *second)}
    return tuple(by_key[key] for key in sorted(by_key))


def _hint_filter(ready: Sequence[Endpoint], node_name: str, zone: str) -> _EndpointFilter | None:
    """Return the filter of ready endpoints by topology hints for this node, or None if hints do not apply."""
    match applied_hints(ready, node_name, zone):
        case "node":
            return lambda endpoint: node_name in endpoint.traits.node_hints
        case "zone":
            return lambda endpoint: zone in endpoint.traits.zone_hints
        case None:
            return None


def applied_hints(ready: Sequence[Endpoint], node_name: str, zone: str) -> Literal["node", "zone"] | None:
    """Return the topology hints by which ready endpoints are selected, or None if hints do not apply.

    Hints apply only if every ready endpoint has some and at least one names this node or, failing that, this zone. A
    partial set of hints must not leave clients without endpoints.
    """
    if not ready or not (ready[0].traits.node_hints or ready[0].traits.zone_hints):
        return None
    if all(e.traits.node_hints for e in ready) and any(node_name in e.traits.node_hints for e in ready):
        return "node"
    if all(e.traits.zone_hints for e in ready) and any(zone in e.traits.zone_hints for e in ready):
        return "zone"
    return None
