"""Checks of cluster IPs: whether nodes or pods have them, and whether a ServiceCIDR contains them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from knft.decide.node import node_addresses
from knft.explain.words import listed
from knft.lint.checks import Check
from knft.lint.manifests import FamilyCluster
from knft.lint.report import Hit, hit
from knft.lint.words import nodes_text
from knft.model import addresses
from knft.model.objects import Node

Conflicts = dict[str, dict[str, list[str]]]
"""The nodes by cluster IP, then by a description of the conflict."""


def cluster_ip_hits(cluster: FamilyCluster) -> Iterator[Hit]:
    """Yield the cluster IPs that nodes or pods have, and those that no ServiceCIDR of the family contains."""
    family, total = cluster.family, len(cluster.manifests.nodes)
    conflicts = cluster_ip_conflicts(cluster)
    written = [cidr for item in cluster.manifests.service_cidrs for cidr in item.spec.cidrs or ()]
    cidrs = addresses.networks_of_family(written, family)
    index = _AddressIndex(cluster.cluster_ips)
    outside = cluster.cluster_ips.difference(*(index.within(cidr) for cidr in cidrs))
    for service, address in {port.name.service: port.port.cluster_ip for port in cluster.ports}.items():
        for conflict, nodes in conflicts.get(address, {}).items():
            values: dict[str, Any] = {"address": address, "conflict": conflict, "at": nodes_text(nodes, total)}
            yield hit(Check.CLUSTER_IP_CONFLICT, service, family=family.value, nodes=nodes, **values)
        if cidrs and address in outside and address not in conflicts:
            values = {"address": address, "cidrs": listed(cidrs)}
            yield hit(Check.CLUSTER_IP_OUTSIDE_SERVICE_CIDRS, service, family=family.value, **values)


def cluster_ip_conflicts(cluster: FamilyCluster) -> Conflicts:
    """Return the cluster IPs that are a node's address or in a node's pod CIDR.

    The cluster CIDR does not count: it may contain Service CIDRs, and nodes then get no pod CIDR in them.
    """
    found: Conflicts = {}
    index = _AddressIndex(cluster.cluster_ips)
    for node in cluster.manifests.nodes:
        for address, conflict in _conflicts(cluster, index, node):
            found.setdefault(address, {}).setdefault(conflict, []).append(node.metadata.name)
    return found


def _conflicts(cluster: FamilyCluster, index: "_AddressIndex", node: Node) -> Iterator[tuple[str, str]]:
    own = (*cluster.manifests.config_of(node).node_ips, *node_addresses(node))
    for address in cluster.cluster_ips.intersection(addresses.of_family(own, cluster.family)):
        yield address, "the node's address"
    listed_cidrs = node.spec.pod_cidrs if node.spec is not None else None
    for cidr in addresses.networks_of_family(listed_cidrs or (), cluster.family):
        for address in index.within(cidr):
            yield address, f"in the pod CIDR {cidr}"


class _AddressIndex:
    """Addresses of one family, sorted: there may be thousands of Services and thousands of nodes."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Sort canonical addresses."""
        pairs = sorted((int(ip_address(text)), text) for text in texts)
        self._numbers, self._texts = [number for number, _ in pairs], [text for _, text in pairs]

    def within(self, cidr: str) -> list[str]:
        """Return the addresses in a canonical CIDR."""
        network = ip_network(cidr)
        first = bisect_left(self._numbers, int(network.network_address))
        return self._texts[first : bisect_right(self._numbers, int(network.broadcast_address))]
