"""The largest Service that knft serves. A larger one is left out before it is expanded, so it costs no memory.

See docs/behaviour/tracking.md#size-limits.
"""

from collections.abc import Iterable

from knft.model.objects import EndpointSlice, Service

MAX_FRONTENDS = 50_000
"""Frontends of a Service in both families: its ports times its addresses."""

MAX_SOURCE_RANGES = 10_000
"""Source ranges of a Service in both families: its ports times its ranges.

The kernel rebuilds the whole set of ranges for each change: replacing 49 500 ranges took 107 s on Linux 6.18.
"""

MAX_ENDPOINTS = 150_000
"""Endpoints of a Service in one family: the sum over its EndpointSlices of ports times endpoints.

knft promises 100 ports with 1 000 endpoints. A rollout adds new endpoints while the old ones still terminate, and an
endpoint may be in two slices for a moment, so there is room for half as many again.
"""


def frontends_error(service: Service | None) -> str:
    """Return why a Service has too many frontends to be served; "" if it has not."""
    if service is None:
        return ""
    spec, status = service.spec, service.status
    ingresses = (status.load_balancer.ingress or ()) if status is not None and status.load_balancer else ()
    ports = len(spec.ports or ())
    addresses = 2 + len(spec.external_ips or ()) + len(ingresses)  # with the cluster IP and the NodePort
    ranges = len(spec.load_balancer_source_ranges or ()) if ingresses else 0
    if ports * addresses > MAX_FRONTENDS:
        return _error(ports, f"{addresses} addresses have {ports * addresses} frontends", MAX_FRONTENDS)
    if ports * ranges > MAX_SOURCE_RANGES:
        return _error(ports, f"{ranges} source ranges need {ports * ranges} ranges", MAX_SOURCE_RANGES)
    return ""


def _error(ports: int, what: str, limit: int) -> str:
    return f"its {ports} ports with {what}, and knft serves at most {limit}; split the Service"


def endpoint_count(endpoint_slice: EndpointSlice) -> int:
    """Return how many endpoints a slice expands to."""
    return len(endpoint_slice.ports or ()) * len(endpoint_slice.endpoints or ())


def endpoints_error(slices: Iterable[EndpointSlice]) -> str:
    """Return why a Service has too many endpoints to be served; "" if it has not."""
    count = sum(map(endpoint_count, slices))
    if count <= MAX_ENDPOINTS:
        return ""
    return (
        f"its EndpointSlices have {count} endpoints (ports times addresses), and knft serves at most {MAX_ENDPOINTS}; "
        f"split the Service"
    )
