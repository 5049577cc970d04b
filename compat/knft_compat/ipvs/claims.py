"""Where Service ports are served: each address and port that becomes a virtual server (E.6)."""

import enum
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft.model.names import Family, Protocol
from knft_compat.cluster import Cluster, Node, ServedPort
from knft_compat.ipvs.vintages import Features


class ClaimKind(enum.Enum):
    """What an address is to its Service port."""

    CLUSTER_IP = "cluster IP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER = "load balancer"
    NODE_PORT = "NodePort"


class Claim(Struct, frozen=True):
    """An address and port where clients reach a Service port, and the endpoints that answer there.

    It knows nothing of other Services that claim the same. ``bound`` tells whether kube-proxy's device has to have the
    address.
    """

    kind: ClaimKind
    protocol: Protocol
    address: str
    port: int
    bound: bool
    affinity_seconds: int
    endpoints: tuple[Endpoint, ...]


def counting(listed: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return those of an interface's addresses that count (E.8): loopback's do not, nor those that IPv6 makes."""
    return tuple(
        address
        for address in addresses.of_family(listed, family)
        if not addresses.is_loopback(address) and not (family is Family.IPV6 and addresses.is_link_local(address))
    )


def node_port_addresses(node: Node) -> tuple[str, ...]:
    """Return the node's own addresses that accept NodePorts; a network may name some that otherwise do not count."""
    if not node.nodeport_cidrs:
        return counting(node.local_addresses, node.family)
    return tuple(
        address
        for address in node.local_addresses
        if not addresses.is_loopback(address) and any(addresses.contains(cidr, address) for cidr in node.nodeport_cidrs)
    )


def claims(cluster: Cluster, features: Features) -> Iterator[Claim]:
    """Yield every claim of every Service port, in kube-proxy's order."""
    for served in cluster.ports:
        for kind, address, bound in _places(served, cluster.node, features):
            yield _claim(served, kind, address, bound=bound)


def _places(served: ServedPort, node: Node, features: Features) -> Iterator[tuple[ClaimKind, str, bool]]:
    port = served.plan.port
    yield ClaimKind.CLUSTER_IP, port.cluster_ip, True
    elsewhere = counting(node.local_addresses, node.family)
    external = [(ClaimKind.EXTERNAL_IP, address) for address in port.external_ips]
    for kind, address in external + [(ClaimKind.LOAD_BALANCER, address) for address in port.load_balancer_vips]:
        yield kind, address, features.binds_foreign or address not in elsewhere
    for address in node_port_addresses(node) if port.node_port else ():
        yield ClaimKind.NODE_PORT, address, False


def _claim(served: ServedPort, kind: ClaimKind, address: str, *, bound: bool) -> Claim:
    port = served.plan.port
    local = port.internal_policy_local if kind is ClaimKind.CLUSTER_IP else port.external_policy_local
    return Claim(
        kind,
        port.protocol,
        address,
        port.node_port if kind is ClaimKind.NODE_PORT else port.port,
        bound,
        port.affinity_seconds,
        _endpoints(served, local=local),
    )


def _endpoints(served: ServedPort, *, local: bool) -> tuple[Endpoint, ...]:
    """Return who answers: where policy Local finds nobody on this node, all others, so that pods here are served."""
    found = served.plan.endpoints
    chosen = found.local or found.cluster if local else found.cluster
    return tuple(sorted({endpoint.key: endpoint for endpoint in chosen}.values(), key=lambda endpoint: endpoint.key))


def bound_addresses(found: tuple[Claim, ...]) -> tuple[str, ...]:
    """Return the addresses that kube-proxy's device has to have, each once."""
    return tuple(dict.fromkeys(claim.address for claim in found if claim.bound))
