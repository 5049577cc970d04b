"""The addresses and ports of Service ports; each becomes a virtual server (docs/behaviour/ipvs.md#service-ports)."""

import enum
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.families import Family
from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft.model.names import NamespacedName
from knft.protocols import Protocol
from knft_compat.ipvs.rule_versions import Features
from knft_compat.sync_input import Node, PlannedPort, SyncInput


class ClaimKind(enum.Enum):
    """The kind of an address of a Service port."""

    CLUSTER_IP = "cluster IP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER = "load balancer"
    NODE_PORT = "NodePort"


class Claim(Struct, frozen=True):
    """An address and port of a Service port, and its endpoints.

    kube-proxy does not detect that other Services have the same address and port. ``is_bound`` tells whether
    kube-proxy adds the address to kube-ipvs0.
    """

    service: NamespacedName
    kind: ClaimKind
    protocol: Protocol
    address: str
    port: int
    is_bound: bool
    affinity_seconds: int
    endpoints: tuple[Endpoint, ...]


def usable_addresses(candidates: Iterable[str], family: Family) -> tuple[str, ...]:
    """Return the candidates without loopback and IPv6 link-local addresses (docs/behaviour/ipvs.md#local-addresses)."""
    return tuple(
        address
        for address in addresses.of_family(candidates, family)
        if not addresses.is_loopback(address) and not (family is Family.IPV6 and addresses.is_link_local(address))
    )


def node_port_addresses(node: Node) -> tuple[str, ...]:
    """Return the node's addresses that accept NodePorts; configured networks may include link-local addresses."""
    if not node.nodeport_cidrs:
        return usable_addresses(node.local_addresses, node.family)
    return tuple(
        address
        for address in node.local_addresses
        if not addresses.is_loopback(address) and any(addresses.contains(cidr, address) for cidr in node.nodeport_cidrs)
    )


def claims(sync_input: SyncInput, features: Features) -> Iterator[Claim]:
    """Yield every claim of every Service port, in kube-proxy's order."""
    for planned in sync_input.ports:
        for kind, address, bound in _claimed_addresses(planned, sync_input.node, features):
            yield _make_claim(planned, kind, address, bound=bound)


def _claimed_addresses(planned: PlannedPort, node: Node, features: Features) -> Iterator[tuple[ClaimKind, str, bool]]:
    port = planned.plan.port
    yield ClaimKind.CLUSTER_IP, port.cluster_ip, True
    interface_addresses = usable_addresses(node.local_addresses, node.family)
    external = [(ClaimKind.EXTERNAL_IP, address) for address in port.external_ips]
    for kind, address in external + [(ClaimKind.LOAD_BALANCER, address) for address in port.load_balancer_vips]:
        yield kind, address, features.binds_addresses_of_other_interfaces or address not in interface_addresses
    for address in node_port_addresses(node) if port.node_port else ():
        yield ClaimKind.NODE_PORT, address, False


def _make_claim(planned: PlannedPort, kind: ClaimKind, address: str, *, bound: bool) -> Claim:
    port = planned.plan.port
    local = port.internal_policy_local if kind is ClaimKind.CLUSTER_IP else port.external_policy_local
    return Claim(
        planned.plan.name.service,
        kind,
        port.protocol,
        address,
        port.node_port if kind is ClaimKind.NODE_PORT else port.port,
        bound,
        port.affinity_seconds,
        _chosen_endpoints(planned, local=local),
    )


def _chosen_endpoints(planned: PlannedPort, *, local: bool) -> tuple[Endpoint, ...]:
    """Return the endpoints; without local ones, policy Local uses remote ones, so that pods are served."""
    found = planned.plan.endpoints
    chosen = found.local or found.cluster if local else found.cluster
    return tuple(sorted({endpoint.key: endpoint for endpoint in chosen}.values(), key=lambda endpoint: endpoint.key))


def bound_addresses(all_claims: tuple[Claim, ...]) -> tuple[str, ...]:
    """Return the addresses that kube-ipvs0 must have, each once."""
    return tuple(dict.fromkeys(claim.address for claim in all_claims if claim.is_bound))
