"""EndpointSlices with the fields that only people read: the pods and zones of endpoints.

The daemon does not decode them: the names of 250 000 pods take 20 MiB. ``knft explain`` does. A wrong value in these
fields is ignored, as in the daemon.
"""

from typing import Any

from knft.model import objects


class DescribedEndpoint(objects.SliceEndpoint, frozen=True, rename="camel", gc=False):
    """An endpoint with its pod and its zone."""

    target_ref: Any = None
    zone: Any = None

    @property
    def pod(self) -> str:
        """The name of the endpoint's pod, "" if it is unknown."""
        ref = self.target_ref
        return _text(ref.get("name")) if isinstance(ref, dict) and ref.get("kind", "Pod") == "Pod" else ""

    @property
    def zone_name(self) -> str:
        """The endpoint's zone, "" if it is unknown."""
        return _text(self.zone)


class EndpointSlice(objects.EndpointSlice, frozen=True, rename="camel", gc=False):
    """An EndpointSlice whose endpoints have pods and zones; messages name it by its kind."""

    endpoints: tuple[DescribedEndpoint, ...] | None = None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
