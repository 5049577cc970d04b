"""Adds the numbers of conntrack entries to an explanation: those of each Service port, and of each endpoint."""

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from knft.explain.explanation import ExplainedPort, Explanation
from knft.explain.frontend_index import KIND_TEXTS
from knft.families import Family
from knft.model.plan import FrontendKey, FrontendKind

_NODE_PORT = KIND_TEXTS[FrontendKind.NODE_PORT]


class ConnectionCount(Struct, frozen=True):
    """The number of conntrack entries of connections to a frontend that are translated to an endpoint."""

    frontend: FrontendKey
    endpoint: str
    count: int


CountConnections = Callable[[Family, frozenset[FrontendKey]], Iterable[ConnectionCount]]
"""Counts the conntrack entries of connections to frontends."""


def with_connections(found: Explanation, count: CountConnections) -> Explanation:
    """Return an explanation with the numbers of conntrack entries; those of each family are read once."""
    counts: dict[str, tuple[ConnectionCount, ...]] = {}
    for family in Family:
        keys = frozenset(key for port in found.ports if port.family == family.value for key in _frontends(port))
        counts[family.value] = tuple(count(family, keys)) if keys else ()
    return replace(found, ports=tuple(_with_counts(port, counts[port.family]) for port in found.ports))


def _frontends(port: ExplainedPort) -> frozenset[FrontendKey]:
    return frozenset(
        (None if each.kind == _NODE_PORT else each.at, port.protocol, each.port)
        for each in port.frontends
        if each.is_owned
    )


def _with_counts(port: ExplainedPort, counts: Iterable[ConnectionCount]) -> ExplainedPort:
    frontends = _frontends(port)
    by_endpoint: Counter[str] = Counter()
    for each in counts:
        if each.frontend in frontends:
            by_endpoint[each.endpoint] += each.count
    endpoints = tuple(replace(each, connections=by_endpoint[each.endpoint]) for each in port.endpoints)
    return replace(port, endpoints=endpoints, connections=by_endpoint.total())
