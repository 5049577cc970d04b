"""Finds external IPs and load balancer IPs of the node or of pods (docs/behaviour/tracking.md#address-conflicts)."""

from knft.config import Config
from knft.decide.node import node_addresses
from knft.model import addresses
from knft.model.objects import Node


def address_conflict(address: str, config: Config, node: Node | None) -> str:
    """Return a description if a canonical address is the node's or in a range of pods, "" if it is neither.

    Addresses of interfaces do not conflict: a machine may announce an address of a Service.
    """
    parsed = addresses.parse_address(address)
    if parsed is None:
        return ""
    family = parsed[0]
    if address in addresses.of_family((*config.node_ips, *node_addresses(node)), family):
        return "the node's address"
    listed = node.spec.pod_cidrs if node is not None and node.spec is not None else None
    pod_cidrs = (*addresses.networks_of_family(listed or (), family), config.configured_pod_cidr(family))
    return next(
        (f"in the pod CIDR {cidr}" for cidr in pod_cidrs if cidr is not None and addresses.contains(cidr, address)), ""
    )
