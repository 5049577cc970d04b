"""The input of an explanation: the objects that knft tracks, as values."""

from collections.abc import Mapping

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

    ``services`` has all Services, also those that knft does not serve, if ``knows_services`` is true; the daemon has no
    headless Services and none of other proxies. ``slices`` has those of each Service, in both families.
    """

    families: Mapping[Family, FamilyObjects]
    services: Mapping[NamespacedName, Service]
    slices: Mapping[NamespacedName, tuple[EndpointSlice, ...]]
    zones: Mapping[str, str] = {}
    knows_services: bool = True


class EndpointDetails(Struct, frozen=True):
    """What an EndpointSlice says of an endpoint besides its conditions; "" if it says nothing."""

    pod: str = ""
    node: str = ""
    zone: str = ""


class EndpointDetailsIndex:
    """The details of the endpoints of one Service in one family."""

    def __init__(self, cluster: Cluster, service: NamespacedName, family: Family) -> None:
        """Index the Service's slices."""
        self._zones = cluster.zones
        self._by_address: dict[str, list[SliceEndpoint]] = {}
        for item in cluster.slices.get(service, ()):
            for endpoint in (item.endpoints or ()) if item.address_type == family.value else ():
                if endpoint.addresses:
                    address = addresses.canonical_text(endpoint.addresses[0])
                    self._by_address.setdefault(address, []).append(endpoint)

    def details(self, endpoint: Endpoint) -> EndpointDetails:
        """Return the details of an endpoint. If several slices have it, use the one with the same conditions."""
        found = self._by_address.get(endpoint.address, ())
        return next((self._details(each) for each in found if _has_conditions_of(each, endpoint)), EndpointDetails())

    def _details(self, endpoint: SliceEndpoint) -> EndpointDetails:
        node = endpoint.node_name or ""
        if not isinstance(endpoint, DescribedEndpoint):
            return EndpointDetails("", node, self._zones.get(node, ""))
        return EndpointDetails(endpoint.pod, node, endpoint.zone_name or self._zones.get(node, ""))


def _has_conditions_of(found: SliceEndpoint, endpoint: Endpoint) -> bool:
    conditions, traits = found.conditions, endpoint.traits
    if conditions is None:
        return traits.ready and not traits.terminating
    return (conditions.ready is not False, conditions.terminating is True) == (traits.ready, traits.terminating)
