"""EndpointPod: what only people read of an endpoint, as the running knft requests it from the API server."""

from msgspec import Struct


class EndpointPod(Struct, frozen=True):
    """The pod and the zone of an endpoint, "" if its EndpointSlice has none; ``is_ready`` is its condition."""

    address: str
    node: str
    pod: str
    zone: str
    is_ready: bool
