"""EndpointPod: the pod and the zone of an endpoint, for people."""

from typing import Literal

from msgspec import Struct

EndpointState = Literal["ready", "not ready", "serving", "terminating"]
"""The state of an endpoint by its conditions."""


class EndpointPod(Struct, frozen=True):
    """The pod and the zone of an endpoint, "" if its EndpointSlice has none; ``state`` is that of its conditions."""

    address: str
    node: str
    pod: str
    zone: str
    state: EndpointState
