"""The input of checks: the objects of manifests, and what knft makes of them in each family."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from knft.config import Config
from knft.decide.endpoints import Endpoints
from knft.decide.frontends import claimed_frontends
from knft.decide.node import node_addresses, view_node
from knft.decide.plan import plan_service_port
from knft.explain.cluster import Cluster, FamilyObjects
from knft.explain.frontend_index import FrontendIndex, index_of_objects
from knft.families import Family
from knft.model.described import EndpointSlice, Service
from knft.model.names import NamespacedName, ServicePortName
from knft.model.node import NodeView
from knft.model.objects import KubeObject, Node, ObjectMeta, ServiceCIDR
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from knft.protocols import NFT_PROTOCOLS
from knft.track.expand import expand_service
from knft.track.size_limits import endpoints_error
from knft.track.slices import EndpointsByPort, PortKey, expand_slice, merge


class Manifests(Struct, frozen=True):
    """The objects of manifests, sorted by name.

    ``nodes`` are those to check for; ``config`` has the settings of all of them. ``known_nodes`` are the names of all
    Nodes of the manifests. ``problems`` are the messages of the reader about invalid objects. ``earlier_services`` are
    those before a change, if there was one. ``unknown_cluster_ips`` are placeholders of the cluster IPs
    that new Services will get, and ``awaiting_slices`` are the new Services that will get EndpointSlices.
    """

    config: Config
    services: tuple[Service, ...]
    slices: tuple[EndpointSlice, ...]
    nodes: tuple[Node, ...]
    service_cidrs: tuple[ServiceCIDR, ...]
    known_nodes: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    earlier_services: Mapping[NamespacedName, Service] = {}
    unknown_cluster_ips: frozenset[str] = frozenset()
    awaiting_slices: frozenset[NamespacedName] = frozenset()

    @property
    def has_all_nodes(self) -> bool:
        """Whether no Node is left out."""
        return self.known_nodes <= frozenset(self.node_names())

    def config_of(self, node: Node) -> Config:
        """Return the settings of a node."""
        return replace(self.config, node_name=node.metadata.name)

    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes to check for."""
        return tuple(node.metadata.name for node in self.nodes)


def manifests_of(
    objects: Iterable[KubeObject], config: Config, node_name: str | None = None, problems: Iterable[str] = ()
) -> Manifests:
    """Return the input of checks for all nodes, or for the one with a name, which need not be among the objects."""
    listed = sorted(objects, key=lambda item: item.key)
    known = [item for item in listed if isinstance(item, Node)]
    nodes = tuple(item for item in known if node_name in (None, item.metadata.name))
    if node_name is not None and not nodes:
        nodes = (Node(ObjectMeta(node_name)),)
    return Manifests(
        config,
        tuple(item for item in listed if isinstance(item, Service)),
        tuple(item for item in listed if isinstance(item, EndpointSlice)),
        nodes,
        tuple(item for item in listed if isinstance(item, ServiceCIDR)),
        frozenset(item.metadata.name for item in known),
        tuple(sorted(problems)),
    )


class PortOfService(Struct, frozen=True):
    """A Service port in one IP family, with all its endpoints, planned for a node that has no name.

    The frontends of ``plan`` are those that it owns: what its packets get matters only there.
    """

    name: ServicePortName
    port: ServicePort
    endpoints: Endpoints
    plan: ServicePlan

    def owns(self, *kinds: FrontendKind) -> tuple[Frontend, ...]:
        """Return the frontends of some kinds that the Service port owns."""
        return tuple(each for each in self.plan.frontends if each.kind in kinds)

    @property
    def text(self) -> str:
        """The port for a finding, such as ``http/tcp``."""
        return f"{self.name.port or self.port.port}/{NFT_PROTOCOLS[self.name.protocol]}"


class FamilyCluster:
    """One family of the manifests."""

    def __init__(self, manifests: Manifests, family: Family) -> None:
        """Expand Services and EndpointSlices as the daemon does."""
        self.manifests, self.family = manifests, family
        self._slices = slices_by_service(
            item
            for item in manifests.slices
            if item.address_type == family.value and item.metadata.proxy_labels.headless is None
        )
        self._ports: dict[ServicePortName, ServicePort] = {}
        for service in manifests.services:
            if service.metadata.proxy_labels.proxy_name is None:
                self._ports |= expand_service(service, family) or {}
        self._endpoints = {service: self._expanded(service, "") for service in {name.service for name in self._ports}}

    @property
    def service_ports(self) -> Iterable[ServicePortName]:
        """The names of all Service ports."""
        return self._ports

    def slices(self, service: NamespacedName) -> tuple[EndpointSlice, ...]:
        """Return the EndpointSlices of a Service that knft uses, of this family."""
        return tuple(self._slices.get(service, ()))

    @cached_property
    def cluster_ips(self) -> frozenset[str]:
        """The cluster IPs of all Services."""
        return frozenset(port.cluster_ip for port in self._ports.values())

    def _expanded(self, service: NamespacedName, node: str) -> EndpointsByPort:
        slices = self._slices.get(service, [])
        return {} if endpoints_error(slices) else merge(expand_slice(item, node) for item in slices)

    @cached_property
    def objects(self) -> FamilyObjects:
        """Service ports and their endpoints, for a node that has no name."""
        return FamilyObjects(
            NodeView(self.family, ""),
            self._ports,
            {name: self._endpoints[name.service].get(PortKey(name.port, name.protocol), ()) for name in self._ports},
        )

    @cached_property
    def index(self) -> FrontendIndex:
        """Who owns and who claims each frontend."""
        return index_of_objects(Cluster({self.family: self.objects}, {}, {}), self.family)

    @cached_property
    def ports(self) -> tuple[PortOfService, ...]:
        """All Service ports."""
        return tuple(self._port(name) for name in sorted(self._ports))

    def _port(self, name: ServicePortName) -> PortOfService:
        endpoints = self.objects.endpoints[name]
        claimed = claimed_frontends(self._ports[name])
        owned = tuple(each for each in claimed if self.owns(name, each))
        plan = plan_service_port(name, self._ports[name], endpoints, owned, self.objects.node)
        return PortOfService(name, self._ports[name], endpoints, plan)

    def owns(self, name: ServicePortName, frontend: Frontend) -> bool:
        """Tell whether a Service port gets the packets to a frontend that it claims.

        A placeholder is not contested: each of its Services gets another cluster IP.
        """
        return frontend.address in self.manifests.unknown_cluster_ips or self.index.owners[frontend.key] == name

    @cached_property
    def rejecting(self) -> frozenset[ServicePortName]:
        """The Service ports without usable endpoints, whose packets are rejected on every node."""
        awaiting = self.manifests.awaiting_slices
        ports = (port for port in self.ports if port.name.service not in awaiting)
        return frozenset(port.name for port in ports if port.plan.internal is TrafficAction.REJECT)

    def plans(self, name: ServicePortName) -> Mapping[str, ServicePlan]:
        """Return what a Service port does on each node."""
        key = PortKey(name.port, name.protocol)
        return {
            node: plan_service_port(name, self._ports[name], self._expanded(name.service, node).get(key, ()), (), view)
            for node, view in self.views.items()
        }

    @cached_property
    def views(self) -> Mapping[str, NodeView]:
        """The nodes, by name."""
        manifests = self.manifests
        return {
            node.metadata.name: view_node(
                self.family, manifests.config_of(node), node, manifests.service_cidrs, node_addresses(node)
            )
            for node in manifests.nodes
        }


def slices_by_service(slices: Iterable[EndpointSlice]) -> dict[NamespacedName, list[EndpointSlice]]:
    """Return EndpointSlices by the Service that their label names, in their order."""
    found: dict[NamespacedName, list[EndpointSlice]] = {}
    for item in slices:
        if name := item.metadata.proxy_labels.service_name:
            found.setdefault(NamespacedName(item.metadata.namespace, name), []).append(item)
    return found
