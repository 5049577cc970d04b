"""Endpoint: one address and port that serves a Service port."""

from msgspec import Struct

_NO_HINTS: frozenset[str] = frozenset()


class Endpoint(Struct, frozen=True, gc=False):
    """An endpoint in one family, as its EndpointSlice describes it.

    ``key`` is ``ip:port``, with brackets for IPv6: the identity and sort key of endpoints
    (docs/behaviour/tracking.md#keys).
    """

    address: str
    port: int
    key: str
    is_local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hints: frozenset[str] = _NO_HINTS
    node_hints: frozenset[str] = _NO_HINTS


def endpoint_key(address: str, port: int) -> str:
    """Return ``ip:port``, with brackets for IPv6."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
