"""What is followed: where the API has it, and which objects of it (A.6)."""

from msgspec import Struct

from knft.model.objects import EndpointSlice, KubeObject, Node, Service, ServiceCIDR


class Resource(Struct, frozen=True):
    """One collection of the API.

    ``paths`` has it in one version after the other, the one to be tried first in front. An ``optional`` one may be
    missing from the API altogether. Selectors are the API's; an old server may not know the field selector, whose
    work is done here too (``source.select``).
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
    """Return the Nodes of this name: one, or none."""
    return Resource("nodes", Node, ("/api/v1/nodes",), field_selector=f"metadata.name={name}")
