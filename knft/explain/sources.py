"""Where frontends and endpoints come from: the objects of a cluster with the rules made from them, or rules alone."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from knft.explain.cluster import Cluster
from knft.explain.explanation import ExplainedPort
from knft.explain.frontend_index import FrontendIndex, index_of_objects, index_of_rules
from knft.explain.kernel_ports import KernelFamilyView, explain_kernel_port, kernel_ports_with_endpoint
from knft.explain.missing import missing_service
from knft.explain.outcomes import Probes
from knft.explain.query import AddressQuery
from knft.explain.sentences import Sentence, Statement
from knft.explain.service_ports import FamilyView, PortExplainer
from knft.explain.unserved import UnservedServices, unserved_reason
from knft.families import FAMILY_OF_VERSION, Family, IpVersion
from knft.interpret.ranges import Ranges
from knft.interpret.rules import RuleSet
from knft.model.names import NamespacedName, ServicePortName
from knft.protocols import Protocol as ServiceProtocol

Rules = Mapping[IpVersion, RuleSet]


class NodeRules(Struct, frozen=True):
    """knft's rules on a node, by IP version, and the addresses of the node as ranges and as texts.

    ``node_ips`` are the node's own addresses. ``nodeport_addresses`` accept NodePorts, the first of them is the node's
    own address if that accepts them. In ``localhost_nodeports``, knft serves NodePorts on the loopback address, too.
    """

    rules: Rules
    node_addresses: Mapping[IpVersion, Ranges]
    node_ips: Mapping[Family, str]
    nodeport_addresses: Mapping[Family, tuple[str, ...]]
    localhost_nodeports: frozenset[Family] = frozenset()

    def own_nodeport_address(self, family: Family) -> str:
        """Return an address that accepts NodePorts, the node's own if possible; "" if none does."""
        return next(iter(self.nodeport_addresses.get(family, ())), "")

    def probes(self) -> dict[Family, Probes]:
        """Return the probes of each family."""
        found = {FAMILY_OF_VERSION[version]: rules for version, rules in self.rules.items()}
        return {
            family: Probes(rules, self.node_addresses[family.version], self.node_ips.get(family, ""))
            for family, rules in found.items()
        }


class Source(Protocol):
    """Where frontends and endpoints come from."""

    name: str
    node: str
    zone: str
    warnings: tuple[str, ...]
    indexes: dict[Family, FrontendIndex]
    probes: dict[Family, Probes]
    nodeport_addresses: Mapping[Family, tuple[str, ...]]

    def explain_port(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain a Service port; list only endpoints with ``address`` and ``port``, if these are given."""

    def port_on_loopback(self, query: AddressQuery) -> ServicePortName | None:
        """Return the Service port whose NodePort knft serves at a loopback address, or None."""

    def ports_of_endpoint(self, family: Family, address: str, port: int) -> tuple[ServicePortName, ...]:
        """Return the Service ports that have an endpoint, whether it is used or not."""

    def unserved(self, service: NamespacedName) -> tuple[Statement, ...]:
        """Return why a Service has no rules; that it does not exist, with similar names; or nothing."""

    def unserved_at(self, address: str) -> tuple[Statement, ...]:
        """Return which Service without rules has an address, and why it has none; or nothing."""

    def unserved_node_port(self, port: int, protocol: ServiceProtocol) -> tuple[Statement, ...]:
        """Return which Service has a NodePort without rules or a health check port, and what follows; or nothing."""

    def unserved_endpoint(self, query: AddressQuery) -> tuple[Statement, ...]:
        """Return which Service has an endpoint that no Service port has, and why none has it; or nothing."""


class ObjectSource:
    """The objects of a cluster, with the rules made from them."""

    def __init__(self, name: str, cluster: Cluster, node_rules: NodeRules, warnings: tuple[str, ...] = ()) -> None:
        """``name`` describes the objects; ``warnings`` are problems of the node's settings."""
        self.name, self._cluster, self.warnings = name, cluster, warnings
        self._no_service = Sentence.NO_SERVICE if cluster.knows_services else Sentence.UNKNOWN_SERVICE
        self._unserved = UnservedServices(cluster, self._no_service)
        self.nodeport_addresses = node_rules.nodeport_addresses
        views = cluster.families.values()
        self.node = next((each.node.name for each in views), "")
        self.zone = next((each.node.zone for each in views), "")
        self.probes = node_rules.probes()
        self.indexes = {family: index_of_objects(cluster, family) for family in cluster.families}
        self._explainer = PortExplainer(
            cluster,
            {
                family: FamilyView(
                    family,
                    cluster.families[family],
                    self.indexes[family],
                    probes,
                    node_rules.own_nodeport_address(family),
                    family in node_rules.localhost_nodeports,
                )
                for family, probes in self.probes.items()
            },
        )

    def explain_port(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain a Service port from objects."""
        return self._explainer.explain(name, family, address, port)

    def port_on_loopback(self, query: AddressQuery) -> ServicePortName | None:
        """Return the Service port whose NodePort knft serves at a loopback address, from objects and settings."""
        return self._explainer.port_on_loopback(query)

    def ports_of_endpoint(self, family: Family, address: str, port: int) -> tuple[ServicePortName, ...]:
        """Return the Service ports with this endpoint in their EndpointSlices."""
        objects = self._cluster.families[family]
        found = (
            name
            for name in objects.ports
            for each in objects.endpoints.get(name, ())
            if each.address == address and port in (0, each.port)
        )
        return tuple(sorted(set(found)))

    def unserved(self, service: NamespacedName) -> tuple[Statement, ...]:
        """Return why a Service has no rules, from the object."""
        found = self._cluster.services.get(service)
        if found is None:
            return missing_service(service, self._cluster.services, self._no_service)
        reason = unserved_reason(found)
        return () if reason is None else (reason,)

    def unserved_at(self, address: str) -> tuple[Statement, ...]:
        """Return which Service without rules has an address, from the objects."""
        return self._unserved.at_address(address)

    def unserved_node_port(self, port: int, protocol: ServiceProtocol) -> tuple[Statement, ...]:
        """Return which Service has a NodePort without rules or a health check port, from the objects."""
        return self._unserved.at_node_port(port, protocol)

    def unserved_endpoint(self, query: AddressQuery) -> tuple[Statement, ...]:
        """Return which Service has an endpoint in its EndpointSlices that no Service port has."""
        return self._unserved.of_endpoint(query)


class KernelSource:
    """knft's rules in the kernel alone."""

    node, zone = "", ""

    def __init__(self, name: str, node_rules: NodeRules, warnings: tuple[str, ...] = ()) -> None:
        """``name`` describes the rules; ``warnings`` say why other sources were not used."""
        self.name, self.warnings = name, warnings
        self.nodeport_addresses = node_rules.nodeport_addresses
        self.probes = node_rules.probes()
        self.indexes = {family: index_of_rules(probes.rules) for family, probes in self.probes.items()}
        self._views = {
            family: KernelFamilyView(self.indexes[family], probes, node_rules.own_nodeport_address(family))
            for family, probes in self.probes.items()
        }

    def explain_port(self, name: ServicePortName, family: Family, address: str = "", port: int = 0) -> ExplainedPort:
        """Explain a Service port from rules."""
        return explain_kernel_port(self._views[family], name, address, port)

    def port_on_loopback(self, query: AddressQuery) -> ServicePortName | None:  # noqa: ARG002 - of the protocol
        """Return None: rules do not tell which NodePorts are served by a process."""
        return None

    def ports_of_endpoint(self, family: Family, address: str, port: int) -> tuple[ServicePortName, ...]:
        """Return the Service ports whose rules send connections to this endpoint."""
        return kernel_ports_with_endpoint(self._views[family], address, port)

    def unserved(self, service: NamespacedName) -> tuple[Statement, ...]:
        """Return that the rules have no such Service; they do not tell why."""
        existing = frozenset[NamespacedName]().union(*(index.services() for index in self.indexes.values()))
        return () if service in existing else missing_service(service, existing, Sentence.KERNEL_NO_SERVICE)

    def unserved_at(self, address: str) -> tuple[Statement, ...]:  # noqa: ARG002 - of the protocol
        """Return nothing: rules have no Services without rules."""
        return ()

    def unserved_node_port(self, port: int, protocol: ServiceProtocol) -> tuple[Statement, ...]:  # noqa: ARG002
        """Return nothing: rules have no Services without rules."""
        return ()

    def unserved_endpoint(self, query: AddressQuery) -> tuple[Statement, ...]:  # noqa: ARG002
        """Return nothing: rules have no Services without rules."""
        return ()
