"""Checks of frontends: their owners, source ranges, and addresses that nodes or pods have."""

from collections.abc import Iterable, Iterator
from typing import Any

from knft.decide.address_conflicts import address_conflict
from knft.decide.frontends import claimed_frontends
from knft.explain.frontend_index import frontend_text
from knft.explain.service_ports import loss_reason
from knft.explain.words import listed
from knft.lint.checks import Check
from knft.lint.manifests import FamilyCluster, PortOfService
from knft.lint.report import Hit, hit
from knft.lint.words import nodes_text
from knft.model import addresses
from knft.model.described import Service
from knft.model.names import NamespacedName
from knft.model.objects import Node
from knft.model.plan import FrontendKind

MAX_ADDRESSES = 100
"""How many external IPs and load balancer IPs of a Service are compared with those of nodes."""


class FrontendChecks:
    """Checks of one family."""

    def __init__(self, cluster: FamilyCluster, services: dict[NamespacedName, Service]) -> None:
        """Take the objects."""
        self._cluster, self._services = cluster, services
        self._family, self._nodes = cluster.family.value, cluster.manifests.nodes

    def hits(self) -> Iterator[Hit]:
        """Yield what is wrong with the frontends of each Service port."""
        for port in self._cluster.ports:
            yield from self._contested(port)
            yield from self._source_ranges(port)
            yield from self._conflicts(port)
        yield from self._health_check_ports()

    def _health_check_ports(self) -> Iterator[Hit]:
        """Yield health check ports that are NodePorts, or those of another Service."""
        services: dict[int, set[NamespacedName]] = {}
        for port in self._cluster.ports:
            if number := port.port.health_check_node_port:
                services.setdefault(number, set()).add(port.name.service)
        for number, names in services.items():
            for name in names:
                other, result = self._other_use(number, sorted(names - {name}))
                if other:
                    values: dict[str, Any] = {"number": number, "other": other, "result": result}
                    yield hit(Check.HEALTH_CHECK_PORT_IN_USE, name, family=self._family, **values)

    def _other_use(self, number: int, services: Iterable[NamespacedName]) -> tuple[str, str]:
        """Return what else a health check port is, and what health checks then ask; ``services`` have it too."""
        owner = self._cluster.index.owners.get((None, "TCP", number))
        if owner is not None:
            return f"a NodePort of {owner}", f"health checks at {number}/tcp go to endpoints of {owner}"
        others = listed(map(str, services))
        return (
            f"that of {others}" if others else "",
            f"health checks at {number}/tcp are about only one of the Services",
        )

    def _contested(self, port: PortOfService) -> Iterator[Hit]:
        index, rejecting = self._cluster.index, self._cluster.rejecting
        for frontend in claimed_frontends(port.port):
            if not self._cluster.owns(port.name, frontend):
                owner = index.owners[frontend.key]
                reason = loss_reason(frontend, port.name, index, self._cluster.objects).text
                values: dict[str, Any] = {"frontend": frontend_text(frontend.key), "reason": reason}
                values["result"] = (
                    f"are rejected: {owner} has no usable endpoint" if owner in rejecting else f"go to {owner}"
                )
                yield hit(Check.CONTESTED_FRONTEND, port.name.service, port=port.text, family=self._family, **values)

    def _source_ranges(self, port: PortOfService) -> Iterator[Hit]:
        service = port.name.service
        vips = [str(each.address) for each in port.owns(FrontendKind.LOAD_BALANCER_VIP)]
        written = self._services[service].spec.load_balancer_source_ranges or ()
        if not vips or not written:
            return
        if not addresses.networks_of_family(written, self._cluster.family):
            yield hit(Check.SOURCE_RANGES_WITHOUT_FAMILY, service, family=self._family, addresses=listed(vips))
            return
        ranges = port.port.load_balancer_source_ranges
        if ranges:
            yield from self._excluded(service, ranges, listed(vips))

    def _excluded(self, service: NamespacedName, ranges: tuple[str, ...], vips: str) -> Iterator[Hit]:
        """Yield which nodes and pods are in no source range; their addresses must be known."""
        allowed = addresses.collapse(ranges)
        by_clients: dict[str, list[str]] = {}
        for node in self._nodes:
            if clients := self._excluded_clients(node, allowed):
                by_clients.setdefault(clients, []).append(node.metadata.name)
        for clients, nodes in by_clients.items():
            their = "its" if len(nodes) == 1 else "their"
            excluded = clients.format(nodes=nodes_text(nodes, len(self._nodes)), their=their)
            values: dict[str, Any] = {"excluded": excluded, "addresses": vips}
            yield hit(Check.SOURCE_RANGES_EXCLUDE_NODES, service, family=self._family, nodes=nodes, **values)

    def _excluded_clients(self, node: Node, allowed: tuple[str, ...]) -> str:
        own = self._cluster.views[node.metadata.name].node_ip
        node_excluded = own is not None and not any(addresses.contains(each, own) for each in allowed)
        listed_cidrs = node.spec.pod_cidrs if node.spec is not None else None
        pods_excluded = any(
            not any(addresses.contains_network(each, cidr) for each in allowed)
            for cidr in addresses.networks_of_family(listed_cidrs or (), self._cluster.family)
        )
        if node_excluded:
            return "{nodes} and of {their} pods" if pods_excluded else "{nodes}"
        return "pods of {nodes}" if pods_excluded else ""

    def _conflicts(self, port: PortOfService) -> Iterator[Hit]:
        kinds = {"load balancer IP": port.port.load_balancer_vips, "external IP": port.port.external_ips}
        found: dict[tuple[str, str, str], list[str]] = {}
        for kind, listed_addresses in kinds.items():
            for address in listed_addresses[:MAX_ADDRESSES]:
                for node in self._nodes:
                    if conflict := address_conflict(address, self._cluster.manifests.config_of(node), node):
                        found.setdefault((kind, address, conflict), []).append(node.metadata.name)
        for (kind, address, conflict), nodes in found.items():
            values: dict[str, Any] = {"kind": kind, "address": address, "conflict": conflict}
            values["at"] = nodes_text(nodes, len(self._nodes))
            yield hit(Check.EXTERNAL_ADDRESS_CONFLICT, port.name.service, family=self._family, nodes=nodes, **values)
