"""Finds endpoints that are probably mistyped: addresses in no pod CIDR, although those of all pods are in one."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from knft.decide.node import node_addresses
from knft.explain.words import listed
from knft.interpret.ranges import Ranges, contains, ranges
from knft.lint.checks import Check
from knft.lint.manifests import FamilyCluster
from knft.lint.report import Hit, hit
from knft.model import addresses
from knft.model.described import DescribedEndpoint, Service
from knft.model.names import NamespacedName


def outside_endpoint_hits(cluster: FamilyCluster, services: Mapping[NamespacedName, Service]) -> Iterator[Hit]:
    """Yield the endpoints of Services with a selector whose addresses no node and no pod can have.

    Many clusters give pods addresses outside of podCIDRs. So nothing is found if one pod has such an address, if a Node
    has no podCIDR, or if no endpoint is in one.
    """
    pod_ranges = _pod_ranges(cluster)
    if pod_ranges is None:
        return
    nodes = cluster.manifests.nodes
    own = addresses.of_family((text for node in nodes for text in node_addresses(node)), cluster.family)
    allowed = cluster.cluster_ips.union(own, cluster.manifests.config.node_ips)
    found: dict[NamespacedName, dict[str, None]] = {}
    has_pods_inside = False
    for service, endpoint in _endpoints(cluster):
        address = addresses.canonical_text(endpoint.addresses[0])
        if contains(pod_ranges, int(ip_address(address))):
            has_pods_inside = True
        elif address not in allowed:
            if endpoint.pod:
                return
            found.setdefault(service, {})[address] = None
    for service, texts in found.items() if has_pods_inside else ():
        if services[service].spec.selector is not None:
            values: dict[str, Any] = {"endpoints": listed(texts)}
            yield hit(Check.ENDPOINT_OUTSIDE_POD_CIDRS, service, family=cluster.family.value, **values)


def _pod_ranges(cluster: FamilyCluster) -> Ranges | None:
    """Return the addresses of pods: those of all nodes and the cluster CIDR; None if a node has no podCIDR."""
    manifests, family = cluster.manifests, cluster.family
    cidrs: set[str] = set()
    for node in manifests.nodes:
        of_node = addresses.networks_of_family((node.spec.pod_cidrs if node.spec is not None else None) or (), family)
        if not of_node:
            return None
        cidrs.update(of_node)
    if not cidrs or not manifests.has_all_nodes:
        return None
    networks = map(ip_network, (*cidrs, *addresses.networks_of_family(manifests.config.cluster_cidrs, family)))
    return ranges((int(each.network_address), int(each.broadcast_address)) for each in networks)


def _endpoints(cluster: FamilyCluster) -> Iterator[tuple[NamespacedName, DescribedEndpoint]]:
    """Yield the endpoints with an address, except those on nodes that the manifests lack, by Service."""
    known = cluster.manifests.known_nodes.union((None, ""))
    for service in dict.fromkeys(name.service for name in cluster.service_ports):
        for item in cluster.slices(service):
            for endpoint in item.endpoints or ():
                if endpoint.addresses and endpoint.node_name in known:
                    yield service, endpoint
