"""The resources that knft watches: their URL paths and selectors (docs/behaviour/tracking.md#selection)."""

from msgspec import Struct

from knft.model.objects import EndpointSlice, KubeObject, Node, Service, ServiceCIDR


class Resource(Struct, frozen=True):
    """One resource of the API.

    ``paths`` are its URL paths, one for each version of the API, in the order in which they are tried. An ``optional``
    resource may be missing. The selectors are sent to the server; an old server may not support the field selector,
    so ``source.select`` selects too.
    """

    name: str
    kind: type[KubeObject]
    paths: tuple[str, ...]
    label_selector: str = ""
    field_selector: str = ""
    optional: bool = False


SERVICES = Resource(
    "services",
    Service,
    ("/api/v1/services",),
    label_selector="!service.kubernetes.io/service-proxy-name",
    field_selector="spec.clusterIP!=None",
)
ENDPOINT_SLICES = Resource(
    "endpointslices",
    EndpointSlice,
    ("/apis/discovery.k8s.io/v1/endpointslices",),
    label_selector="!service.kubernetes.io/headless",
)
SERVICE_CIDRS = Resource(
    "servicecidrs",
    ServiceCIDR,
    ("/apis/networking.k8s.io/v1/servicecidrs", "/apis/networking.k8s.io/v1beta1/servicecidrs"),
    optional=True,
)


def node(name: str) -> Resource:
    """Return the resource with the one Node of this name."""
    return Resource("nodes", Node, ("/api/v1/nodes",), field_selector=f"metadata.name={name}")
