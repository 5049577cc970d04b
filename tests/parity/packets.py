"""The packets of a cluster: from every kind of client to every kind of frontend, in both families and protocols."""

import ipaddress
from collections.abc import Iterator
from itertools import chain

from tests.parity.dial import Target
from tests.parity.random_cluster import (
    Cluster,
    Service,
    cluster_ip,
    external_addresses,
    has_external_frontends,
    host_addresses,
    ingress_addresses,
    is_proxied,
    node_port_of,
    port_numbers,
)
from tests.parity.varying_clients import NETWORKS, VARYING, concrete
from tests.support.lab import plan
from tests.support.lab.outcomes import Protocol

OUTSIDE, NODE, POD, OTHER_POD, REMOTE_POD = "outside", "node", "local-1", "local-4", "remote-3"
"""The clients: outside the cluster, the node, a pod that is often an endpoint, one that is none, and a remote pod that
is none: no answer reaches a remote pod whose packet goes to itself through the node."""
UNDEFINED_PORT = 9
UNALLOCATED = plan.Subnet("10.96.0", "fd00:10:96").at(250)
_ROUTED_CLIENTS = (OUTSIDE, NODE, POD, OTHER_POD)
_ALL_CLIENTS = (*_ROUTED_CLIENTS, REMOTE_POD)
_FAMILIES = ("IPv4", "IPv6")


def packets(cluster: Cluster) -> list[Target]:
    """Return the packets; a remote pod reaches only NodePorts, because its own node has no proxy."""
    found = chain.from_iterable(_of_service(service) for service in cluster.services if is_proxied(service))
    return list(dict.fromkeys((*found, *_of_no_service())))


def sticky_packets(cluster: Cluster) -> dict[Target, bool]:
    """Return the packets to Services with session affinity, and whether a client has one server for all of them.

    A client of a Service with external policy Local alone may be remembered at two: one for its cluster IP, and one on
    this node. Which of them it gets later depends on the order of its connections.
    """
    services = [service for service in cluster.services if is_proxied(service) and service.sticky]
    return {
        target: not _has_two_pools(service)
        for service in services
        for target in _of_service(service)
        if target.source != VARYING
    }


def source_address(target: Target) -> str:
    """Return the source address of a packet, before NAT; one of them if it varies."""
    version: plan.Version = 6 if ":" in target.address else 4
    if target.source is not None:
        return concrete(target, 0).source or target.source
    if target.client == OUTSIDE:
        return plan.OUTSIDE.of(version)
    if target.client == plan.NODE.host:
        own = {plan.NODE.lan.of(version), plan.NODE.gateway.of(version), "127.0.0.1"}
        return target.address if target.address in own else plan.NODE.lan.of(version)
    return host_addresses(target.client).of(version)


def _has_two_pools(service: Service) -> bool:
    is_external = service.external_policy == "Local" and has_external_frontends(service)
    return is_external != (service.internal_policy == "Local")


def _of_service(service: Service) -> Iterator[Target]:
    for name, protocol, port in port_numbers(service):
        transport: Protocol = "udp" if protocol == "UDP" else "tcp"
        for address in _addresses(service):
            yield from _from(_ROUTED_CLIENTS, address, port, transport)
            yield from _from_varying(service, address, port, transport)
        if node_port := node_port_of(service, name):
            # A remote pod gets no answer from a remote endpoint. With affinity, that would be all its answers.
            clients = _ROUTED_CLIENTS if service.sticky else _ALL_CLIENTS
            for address in _node_addresses(service):
                yield from _from(clients, address, node_port, transport)
                yield from _from_varying(service, address, node_port, transport)
            if "IPv4" in service.families:
                yield Target(NODE, None, "127.0.0.1", node_port, transport)
    for family in service.families:
        yield from _from((OUTSIDE, NODE, POD), cluster_ip(service, family), UNDEFINED_PORT, "tcp")


def _addresses(service: Service) -> Iterator[str]:
    yield from (cluster_ip(service, family) for family in service.families)
    if service.has_external_ips:
        yield from external_addresses(service)
    if service.type == "LoadBalancer" and service.ingress:
        yield from ingress_addresses(service)


def _node_addresses(service: Service) -> Iterator[str]:
    for addresses in (plan.NODE.lan, plan.NODE.gateway):
        yield from (address for address in (addresses.ipv4, addresses.ipv6) if _family(address) in service.families)


def _of_no_service() -> Iterator[Target]:
    for address in (UNALLOCATED.ipv4, UNALLOCATED.ipv6):
        yield from _from((OUTSIDE, NODE, POD), address, 80, "tcp")
    # Answers of remote pods to a client outside do not pass the node: conntrack takes the rest for invalid.
    for clients, pod in (((OUTSIDE, POD), plan.NODE.pod_addresses(2)), ((POD,), plan.REMOTE.pod_addresses(1))):
        yield from _from(clients, pod.ipv4, 8080, "tcp")
        yield from _from(clients, pod.ipv6, 8080, "udp")


def _from(clients: tuple[str, ...], address: str, port: int, protocol: Protocol) -> Iterator[Target]:
    for client in clients:
        yield Target(client, None, address, port, protocol)
        if client == OUTSIDE:
            second = plan.SECOND_OUTSIDE.of(4 if _family(address) == "IPv4" else 6)
            yield Target(client, second, address, port, protocol)


def _from_varying(service: Service, address: str, port: int, protocol: Protocol) -> Iterator[Target]:
    """Yield packets that come from another client each time, if each client of the Service keeps its endpoint."""
    for client in NETWORKS if service.sticky else ():
        yield Target(client, VARYING, address, port, protocol)


def _family(address: str) -> str:
    return _FAMILIES[ipaddress.ip_address(address).version == 6]
