"""The NodeView of a family, from Node object, ServiceCIDRs, flags (docs/behaviour/configuration.md#node-addresses)."""

from collections.abc import Iterable

from knft.config import PRIMARY, Config
from knft.decide.node_problems import shown_first
from knft.decide.service_cidrs import find_conflicts
from knft.families import Family
from knft.model import addresses
from knft.model.node import NodeView
from knft.model.objects import Node, ServiceCIDR


def view_node(
    family: Family,
    config: Config,
    node: Node | None,
    service_cidrs: Iterable[ServiceCIDR],
    local_addresses: Iterable[str],
) -> NodeView:
    """Return the NodeView of ``family``.

    ``local_addresses`` are the candidates for NodePort CIDRs: the addresses of the machine's interfaces, or those of
    the Node object if the machine's are unknown, as when rendering without a kernel.
    """
    node_ip = next(iter(addresses.of_family(_node_ips(config, node), family)), None)
    local_addresses = tuple(local_addresses)
    listed = [cidr for item in service_cidrs for cidr in item.spec.cidrs or ()]
    conflicts = find_conflicts(listed, family, config, node=node, node_ip=node_ip, local_addresses=local_addresses)
    cidrs = {
        *addresses.networks_of_family(config.service_cidrs, family),
        *(cidr for cidr in addresses.networks_of_family(listed, family) if cidr not in conflicts),
    }
    return NodeView(
        family=family,
        name=config.node_name,
        zone=(node.metadata.proxy_labels.zone or "") if node is not None else "",
        node_ip=node_ip,
        nodeport_ips=frozenset(_nodeport_ips(family, config, node_ip, local_addresses)),
        service_cidrs=tuple(sorted(cidrs)),
        pod_cidr=_pod_cidr(family, config, node),
    )


def _pod_cidr(family: Family, config: Config, node: Node | None) -> str | None:
    match config.detect_local_mode:
        case "ClusterCIDR":
            return config.cluster_cidr(family)
        case "NodeCIDR":
            listed = node.spec.pod_cidrs if node is not None and node.spec is not None else None
            return next(iter(addresses.networks_of_family(listed or (), family)), None)
        case _:
            return None


def _node_ips(config: Config, node: Node | None) -> tuple[str, ...]:
    """Return the node's addresses by priority: flags, InternalIP, ExternalIP."""
    return (*config.node_ips, *node_addresses(node))


def node_addresses(node: Node | None) -> tuple[str, ...]:
    """Return the IP addresses of a Node object, InternalIPs before ExternalIPs."""
    if node is None or node.status is None:
        return ()
    listed = node.status.addresses or ()
    return tuple(item.address for kind in ("InternalIP", "ExternalIP") for item in listed if item.type == kind)


def _nodeport_ips(family: Family, config: Config, node_ip: str | None, local_addresses: Iterable[str]) -> Iterable[str]:
    if PRIMARY in config.nodeport_addresses and node_ip and not addresses.is_loopback(node_ip):
        yield node_ip
    cidrs = config.nodeport_cidrs(family)
    for address in addresses.of_family(local_addresses, family):
        if any(addresses.contains(cidr, address) for cidr in cidrs) and not addresses.is_loopback(address):
            yield address


def describe_node(view: NodeView, config: Config) -> str:
    """Return a log message about the addresses and ranges of the node in one family; it names the first of many."""
    if config.nodeports_on_all_addresses(view.family):
        nodeports = "all local addresses"
    else:
        nodeports = shown_first(view.nodeport_ips) or "no address"
    parts = (
        f"node address {view.node_ip or 'unknown'}",
        f"NodePorts at {nodeports}",
        f"cluster IPs in {shown_first(view.service_cidrs)}" if view.service_cidrs else "no range of cluster IPs",
        f"pods in {view.pod_cidr}" if view.pod_cidr else "",
    )
    return "; ".join(part for part in parts if part)
