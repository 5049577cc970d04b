"""Endpoint: one address and port that serves a Service port."""

from operator import attrgetter

from msgspec import Struct

_NO_HINTS: frozenset[str] = frozenset()


class EndpointTraits(Struct, frozen=True, gc=False):
    """An endpoint's locality, conditions and topology hints; equal traits should be one object, to save memory."""

    is_local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hints: frozenset[str] = _NO_HINTS
    node_hints: frozenset[str] = _NO_HINTS


class Endpoint(Struct, frozen=True, gc=False):
    """An endpoint in one family, as its EndpointSlice describes it.

    ``target`` is its address and port, one object for the endpoint and for the elements that lead to it.
    """

    target: tuple[str, int]
    traits: EndpointTraits = EndpointTraits()

    @classmethod
    def at(
        cls,
        address: str,
        port: int,
        *,
        is_local: bool = False,
        ready: bool = True,
        serving: bool = True,
        terminating: bool = False,
        zone_hints: frozenset[str] = _NO_HINTS,
        node_hints: frozenset[str] = _NO_HINTS,
    ) -> "Endpoint":
        """Return an endpoint with these traits; by default it is ready, and on another node."""
        return cls((address, port), EndpointTraits(is_local, ready, serving, terminating, zone_hints, node_hints))

    @property
    def address(self) -> str:
        """The IP address."""
        return self.target[0]

    @property
    def port(self) -> int:
        """The port number."""
        return self.target[1]

    @property
    def is_local(self) -> bool:
        """Whether it is on this node."""
        return self.traits.is_local

    @property
    def ready(self) -> bool:
        """Whether it is ready."""
        return self.traits.ready

    @property
    def serving(self) -> bool:
        """Whether it serves, also while it terminates."""
        return self.traits.serving

    @property
    def key(self) -> str:
        """``ip:port``, with brackets for IPv6: the identity and sort key of endpoints.

        Computed, because 250 000 of them take 24 MiB. See docs/behaviour/tracking.md#keys.
        """
        return endpoint_key(*self.target)


# For map() and filter(), which repeat for each endpoint in C what a comprehension does in Python.
endpoint_target = attrgetter("target")
endpoint_is_ready = attrgetter("traits.ready")
endpoint_is_local = attrgetter("traits.is_local")


def endpoint_key(address: str, port: int) -> str:
    """Return ``ip:port``, with brackets for IPv6."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
