"""Endpoint: one address and port that serves a Service port."""

from msgspec import Struct

_NO_HINTS: frozenset[str] = frozenset()


class Endpoint(Struct, frozen=True, gc=False):
    """An endpoint in one family, as its EndpointSlice describes it."""

    address: str
    port: int
    is_local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hints: frozenset[str] = _NO_HINTS
    node_hints: frozenset[str] = _NO_HINTS

    @property
    def key(self) -> str:
        """``ip:port``, with brackets for IPv6: the identity and sort key of endpoints.

        Computed, because 250 000 of them take 24 MiB. See docs/behaviour/tracking.md#keys.
        """
        return endpoint_key(self.address, self.port)


def endpoint_key(address: str, port: int) -> str:
    """Return ``ip:port``, with brackets for IPv6."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
