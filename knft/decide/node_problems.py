"""Problems of the node's settings: its name or its addresses are probably mistaken (docs/behaviour/node.md#mismatch).

Each function returns a message for the operator, "" without a problem. The same settings may be right, for example if
the Node object or the address appears later; so the caller decides what follows.
"""

import heapq
from collections.abc import Collection, Iterable

from knft.config import PRIMARY, Config
from knft.families import Family
from knft.model import addresses
from knft.model.node import NodeView

MAX_LISTED = 5
"""Most names or addresses in one message."""


def missing_node_problem(name: str, other_nodes: Collection[str]) -> str:
    """Return the problem of a ``--node`` without a Node object; manifests may leave out all Nodes."""
    if not other_nodes:
        return ""
    return f"--node: there is no Node {name!r}; the Nodes are {shown_first(other_nodes)}"


def unknown_name_problem(name: str, node_names: Collection[str]) -> str:
    """Return the problem of a ``--node`` that has no endpoint, if there is no Node object at all.

    ``node_names`` are the nodes of all endpoints. The node may have no pods, so the name is not necessarily wrong.
    """
    if not node_names or name in node_names:
        return ""
    listed = shown_first(node_names)
    return f"--node: there is no Node object, and no endpoint is on node {name!r}; endpoints are on nodes {listed}"


def address_problem(node: NodeView, config: Config, local_addresses: Collection[str]) -> str:
    """Return the problem of a node address that no interface of this machine has.

    The address of a Node object matters only if it accepts NodePorts: a cloud provider may translate it.
    """
    address = node.node_ip
    if address is None or address in local_addresses:
        return ""
    is_configured = address in config.node_ips
    if not is_configured and PRIMARY not in config.nodeport_addresses:
        return ""
    where = "--node-ip" if is_configured else f"Node {node.name!r}"
    return f"{where}: no interface has the node's address {address}{_usable_text(node.family, local_addresses)}"


def nodeport_problem(node: NodeView, config: Config, local_addresses: Collection[str]) -> str:
    """Return the problem of a family in which no address accepts NodePorts, although Services have some."""
    if node.nodeport_ips or config.nodeports_on_all_addresses(node.family):
        return ""
    usable = _usable_text(node.family, local_addresses)
    if PRIMARY not in config.nodeport_addresses:
        if config.serves_localhost_nodeports(node.family):
            return ""
        return f"no {node.family.value} address accepts NodePorts: none is in --nodeport-addresses{usable}"
    reason = f"{node.node_ip} is a loopback address" if node.node_ip is not None else "the node has none"
    return f"no {node.family.value} address accepts NodePorts: {reason}; give the node's address with --node-ip{usable}"


def cluster_cidr_problem(config: Config) -> str:
    """Return the problem of a missing ``--cluster-cidr``; clusters without a range of all pods have none."""
    if not config.lacks_cluster_cidr:
        return ""
    return (
        "no --cluster-cidr: packets from pods count as packets from outside; give the value of the cluster, "
        "clusterCIDR in kube-proxy's configuration"
    )


_DROPPED = "drop new connections to all its addresses that no Service has"


def service_cidr_flag_problem(cidr: str, conflict: str) -> str:
    """Return the problem of a range of ``--service-cidr``; ``conflict`` is of ``find_conflicts``."""
    return f"--service-cidr: {cidr} {conflict}; knft would {_DROPPED}"


def service_cidr_object_problem(name: str, cidr: str, conflict: str) -> str:
    """Return the problem of a range of a ServiceCIDR object, which knft does not use."""
    return f"ServiceCIDR {name!r}: {cidr} {conflict}; knft ignores this range, because it would {_DROPPED}"


def shown_first(texts: Collection[str], not_given: int = 0) -> str:
    """Return the first texts in sorted order, and how many there are besides; ``not_given`` are not in ``texts``."""
    listed = ", ".join(heapq.nsmallest(MAX_LISTED, texts))
    rest = max(0, len(texts) - MAX_LISTED) + not_given
    return f"{listed} and {rest} more" if rest > 0 else listed


def _usable_text(family: Family, local_addresses: Iterable[str]) -> str:
    """Return a description of the machine's addresses of one family that other machines can reach."""
    usable = addresses.reachable_addresses(local_addresses, family)
    return f"; the {family.value} addresses of this machine are {shown_first(usable)}" if usable else ""
