"""Checks that depend on the nodes: policy Local, addresses for NodePorts, zones, and Service CIDRs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from knft.decide.node import node_addresses
from knft.decide.service_cidrs import find_conflicts
from knft.explain.words import listed
from knft.lint.checks import Check, Severity
from knft.lint.endpoints import local_endpoint_texts
from knft.lint.manifests import FamilyCluster, PortOfService
from knft.lint.report import Hit, hit
from knft.lint.words import nodes_text, share_values
from knft.model.objects import Node
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction


class NodeChecks:
    """Checks of one family for all nodes."""

    def __init__(self, cluster: FamilyCluster) -> None:
        """Take the objects."""
        self._cluster, self._family = cluster, cluster.family.value
        self._nodes = cluster.manifests.nodes

    def hits(self, *, with_endpoints: bool) -> Iterator[Hit]:
        """Yield what is wrong on some nodes or on all; without EndpointSlices, only what does not depend on them."""
        for port in self._cluster.ports:
            if with_endpoints and port.port.uses_local_endpoints and port.plan.internal is not TrafficAction.REJECT:
                yield from self._local_policies(port)
            if port.owns(FrontendKind.NODE_PORT):
                yield from self._node_port(port)
        yield from self._service_cidrs()
        if with_endpoints:
            yield from self._zones()

    def _local_policies(self, port: PortOfService) -> Iterator[Hit]:
        plans = self._cluster.plans(port.name)
        is_internal = port.port.internal_policy_local
        external = [node for node, plan in plans.items() if plan.external is TrafficAction.DROP]
        internal = [node for node, plan in plans.items() if plan.internal is TrafficAction.DROP]
        elsewhere = _elsewhere(plans)
        frontends = port.owns(FrontendKind.NODE_PORT, FrontendKind.EXTERNAL_IP, FrontendKind.LOAD_BALANCER_VIP)
        if frontends and external:
            # A load balancer finds nodes without endpoints by health checks.
            has_health_check = bool(port.port.health_check_node_port) and not port.port.external_ips
            if self._severity(external) == "problem" or not has_health_check:
                named = _frontend_texts(frontends)
                yield self._local(Check.EXTERNAL_POLICY_LOCAL, port, external, elsewhere, frontends=named)
        if internal and port.owns(FrontendKind.CLUSTER_IP):
            yield self._local(Check.INTERNAL_POLICY_LOCAL, port, internal, elsewhere)
        policy = "internalTrafficPolicy" if is_internal else "externalTrafficPolicy"
        slices = self._cluster.slices(port.name.service)
        for problem, texts in local_endpoint_texts(slices, self._cluster.manifests.known_nodes).items():
            values: dict[str, Any] = {"endpoints": listed(dict.fromkeys(texts)), "problem": problem, "policy": policy}
            yield hit(Check.ENDPOINT_WITHOUT_NODE, port.name.service, family=self._family, **values)

    def _local(
        self, check: Check, port: PortOfService, nodes: Collection[str], elsewhere: str, **values: object
    ) -> Hit:
        share = share_values(nodes, len(self._nodes))
        return hit(
            check, port.name.service, port=port.text, family=self._family, nodes=nodes,
            severity=self._severity(nodes), elsewhere=elsewhere, **share, **values,
        )  # fmt: skip

    def _node_port(self, port: PortOfService) -> Iterator[Hit]:
        """Yield nodes on which no address accepts NodePorts; a Node without addresses says nothing about them."""
        nodes = [
            node.metadata.name
            for node in self._nodes
            if node_addresses(node)
            and not self._cluster.views[node.metadata.name].nodeport_ips
            and not self._cluster.manifests.config.nodeports_on_all_addresses(self._cluster.family)
        ]
        if nodes:
            values: dict[str, Any] = {**share_values(nodes, len(self._nodes)), "node_port": str(port.port.node_port)}
            yield hit(
                Check.NODE_PORT_WITHOUT_ADDRESS, port.name.service, port=port.text, family=self._family, nodes=nodes,
                severity=self._severity(nodes), **values,
            )  # fmt: skip

    def _severity(self, nodes: Collection[str]) -> Severity:
        """Return how serious it is that something does not work on some nodes: clients may use the others."""
        is_everywhere = len(nodes) == len(self._nodes) and self._cluster.manifests.has_all_nodes
        return "problem" if is_everywhere else "warning"

    def _service_cidrs(self) -> Iterator[Hit]:
        for item in self._cluster.manifests.service_cidrs:
            found: dict[tuple[str, str], list[str]] = {}
            for node in self._nodes:
                for cidr, conflict in self._conflicts(item.spec.cidrs or (), node).items():
                    found.setdefault((cidr, conflict), []).append(node.metadata.name)
            for (cidr, conflict), nodes in found.items():
                values: dict[str, Any] = {
                    "cidr": cidr,
                    "conflict": conflict,
                    "at": nodes_text(nodes, len(self._nodes)),
                }
                name = f"ServiceCIDR {item.metadata.name}"
                yield hit(Check.SERVICE_CIDR_CONFLICT, name, family=self._family, nodes=nodes, **values)

    def _conflicts(self, cidrs: Iterable[str], node: Node) -> dict[str, str]:
        family, config = self._cluster.family, self._cluster.manifests.config_of(node)
        own = self._cluster.views[node.metadata.name].node_ip
        return find_conflicts(cidrs, family, config, node=node, node_ip=own, local_addresses=node_addresses(node))

    def _zones(self) -> Iterator[Hit]:
        """Yield nodes without a zone, if all ready endpoints of a Service port have hints for zones."""
        nodes = [node.metadata.name for node in self._nodes if not node.metadata.proxy_labels.zone]
        services = dict.fromkeys(
            str(port.name.service)
            for port in self._cluster.ports
            if port.port.uses_cluster_endpoints
            and (ready := [each.traits for each in port.endpoints if each.ready])
            and all(each.zone_hints for each in ready)
        )
        if nodes and services:
            values: dict[str, Any] = {**share_values(nodes, len(self._nodes)), "services": listed(services)}
            yield hit(Check.NODE_WITHOUT_ZONE, "Nodes", nodes=nodes, **values)


def _elsewhere(plans: Mapping[str, ServicePlan]) -> str:
    """Return which nodes have usable endpoints."""
    found = [node for node, plan in plans.items() if plan.endpoints.local]
    return f"; its endpoints are on {listed(found)}" if found else ""


_KINDS = {
    FrontendKind.NODE_PORT: "NodePort",
    FrontendKind.EXTERNAL_IP: "external IP",
    FrontendKind.LOAD_BALANCER_VIP: "load balancer IP",
}


def _frontend_texts(frontends: Iterable[Frontend]) -> str:
    return listed(f"{_KINDS[each.kind]} {each.address or each.port}" for each in frontends)
