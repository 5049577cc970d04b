"""The input of an explanation: the objects that knft tracks, as values."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from knft.families import Family
from knft.model import addresses
from knft.model.described import DescribedEndpoint
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName, ServicePortName
from knft.model.node import NodeView
from knft.model.objects import EndpointSlice, Service, SliceEndpoint
from knft.model.service_port import ServicePort


class FamilyObjects(Struct, frozen=True):
    """The node, the Service ports and all their endpoints in one family, as a ``ServiceState`` has them."""

    node: NodeView
    ports: Mapping[ServicePortName, ServicePort]
    endpoints: Mapping[ServicePortName, tuple[Endpoint, ...]]


class Cluster(Struct, frozen=True):
    """The objects of a cluster. ``zones`` are the zones of nodes.

    ``services`` has all Services, also those that knft does not serve; ``slices`` those of each Service, in both
    families.
    """

    families: Mapping[Family, FamilyObjects]
    services: Mapping[NamespacedName, Service]
    slices: Mapping[NamespacedName, tuple[EndpointSlice, ...]]
    zones: Mapping[str, str] = {}


class EndpointDetails(Struct, frozen=True):
    """What an EndpointSlice says of an endpoint besides its conditions; "" if it says nothing."""

    pod: str = ""
    node: str = ""
    zone: str = ""


def endpoint_details(cluster: Cluster, name: ServicePortName, endpoint: Endpoint, family: Family) -> EndpointDetails:
    """Return the details of an endpoint; of several slices that have it, those of the one whose conditions it has."""
    slices = (item for item in cluster.slices.get(name.service, ()) if item.address_type == family.value)
    found = list(_with_address(slices, endpoint.address))
    return next((_details(cluster, each) for each in found if _has_conditions_of(each, endpoint)), EndpointDetails())


def _with_address(slices: Iterable[EndpointSlice], address: str) -> Iterator[SliceEndpoint]:
    for item in slices:
        for endpoint in item.endpoints or ():
            if endpoint.addresses and addresses.canonical_text(endpoint.addresses[0]) == address:
                yield endpoint


def _has_conditions_of(found: SliceEndpoint, endpoint: Endpoint) -> bool:
    conditions, traits = found.conditions, endpoint.traits
    if conditions is None:
        return traits.ready and not traits.terminating
    return ((conditions.ready is not False), (conditions.terminating is True)) == (traits.ready, traits.terminating)


def _details(cluster: Cluster, endpoint: SliceEndpoint) -> EndpointDetails:
    node = endpoint.node_name or ""
    pod = endpoint.pod if isinstance(endpoint, DescribedEndpoint) else ""
    zone = endpoint.zone_name if isinstance(endpoint, DescribedEndpoint) else ""
    return EndpointDetails(pod, node, zone or cluster.zones.get(node, ""))
