"""What is in kube-proxy's ipsets, for the Services that there are (E.3, E.6)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.errors import UsageError
from knft.model import addresses
from knft.model.names import Protocol
from knft_compat.cluster import Cluster, ServedPort
from knft_compat.ipvs.claims import bound_addresses, claims, node_port_addresses
from knft_compat.ipvs.names import (
    BOUND_IPS,
    CLUSTER_IPS,
    EXTERNAL_IPS,
    GUARDED_LOAD_BALANCERS,
    HAIRPINS,
    HEALTH_CHECK_NODE_PORTS,
    LOAD_BALANCERS,
    LOCAL_EXTERNAL_IPS,
    LOCAL_LOAD_BALANCERS,
    LOCAL_NODE_PORTS,
    NODE_PORTS,
    SOURCE_CIDRS,
    SOURCE_IPS,
)
from knft_compat.ipvs.sets import BITMAP, MOST_ENTRIES, SETS, FilledSet, FilledSets
from knft_compat.ipvs.vintages import Features


class Fenced(Struct, frozen=True):
    """A load balancer's address that this node itself may not dial: its own is in none of the source ranges."""

    address: str
    protocol: str
    port: int


class Entries(Struct, frozen=True):
    """The entries of each set, by its IPv4 name, and what is fenced, in the order of Service ports."""

    sets: dict[str, tuple[str, ...]]
    fenced: tuple[Fenced, ...]


Entry = tuple[str, str]
"""A set's IPv4 name, and what is in it."""


def entries(cluster: Cluster, features: Features) -> Entries:
    """Return what has to be in the sets; raise UsageError where a set cannot hold it."""
    found: dict[str, dict[str, None]] = {name: {} for name in SETS if name not in features.without_sets}
    for served in cluster.ports:
        for name, entry in _of_port(served, cluster):
            found[name][entry] = None
    if BOUND_IPS in found:
        found[BOUND_IPS] = dict.fromkeys(bound_addresses(tuple(claims(cluster, features))))
    for name, members in found.items():
        _check_size(name, len(members))
    # What two Services claim kube-proxy fences twice; no packet reaches the second rule.
    fenced = (item for served in cluster.ports for item in _fenced(served, cluster.node.known_ip))
    return Entries({name: tuple(members) for name, members in found.items()}, tuple(dict.fromkeys(fenced)))


def filled_sets(cluster: Cluster, wanted: Entries, before: Entries | None) -> FilledSets:
    """Return the sets with their entries; what only ``before`` had is stale."""
    filled = []
    for name, members in wanted.sets.items():
        kind, current = SETS[name], frozenset(members)
        earlier = () if before is None else before.sets[name]
        stale = tuple(entry for entry in earlier if entry not in current)
        own_name = kind.name_in(cluster.family)
        filled.append(FilledSet(own_name, kind.type, cluster.family, kind.comment, members, stale))
    return FilledSets(tuple(filled))


def _of_port(served: ServedPort, cluster: Cluster) -> Iterator[Entry]:
    port = served.plan.port
    protocol = port.protocol.lower()
    for endpoint in served.endpoints:
        if endpoint.is_local:
            yield HAIRPINS, f"{endpoint.address},{protocol}:{endpoint.port},{endpoint.address}"
    yield CLUSTER_IPS, f"{port.cluster_ip},{protocol}:{port.port}"
    for address in port.external_ips:
        name = LOCAL_EXTERNAL_IPS if port.external_policy_local else EXTERNAL_IPS
        yield name, f"{address},{protocol}:{port.port}"
    for vip in port.load_balancer_vips:
        yield from _of_load_balancer(served, vip, cluster.node.known_ip)
    if port.node_port and not (accepting := node_port_addresses(cluster.node)):
        return  # kube-proxy passes over the rest of such a port, its health check too.
    if port.node_port:
        yield from _of_node_port(port.protocol, port.node_port, accepting, local=port.external_policy_local)
    if port.health_check_node_port:
        yield HEALTH_CHECK_NODE_PORTS, str(port.health_check_node_port)


def _of_load_balancer(served: ServedPort, vip: str, node_ip: str) -> Iterator[Entry]:
    port = served.plan.port
    entry = f"{vip},{port.protocol.lower()}:{port.port}"
    yield LOAD_BALANCERS, entry
    if port.external_policy_local:
        yield LOCAL_LOAD_BALANCERS, entry
    if port.load_balancer_source_ranges:
        yield GUARDED_LOAD_BALANCERS, entry
    for cidr in port.load_balancer_source_ranges:
        _check_range(served, cidr)
        yield SOURCE_CIDRS, f"{entry},{cidr}"
    if _node_may_dial(served, node_ip):
        yield SOURCE_IPS, f"{entry},{vip}"


def _of_node_port(protocol: Protocol, number: int, accepting: tuple[str, ...], *, local: bool) -> Iterator[Entry]:
    is_hash = protocol == "SCTP"
    members = [f"{address},sctp:{number}" for address in accepting] if is_hash else [str(number)]
    for name in (NODE_PORTS[protocol], *([LOCAL_NODE_PORTS[protocol]] if local else [])):
        for member in members:
            yield name, member


def _fenced(served: ServedPort, node_ip: str) -> Iterator[Fenced]:
    port = served.plan.port
    if port.load_balancer_source_ranges and not _node_may_dial(served, node_ip):
        for vip in port.load_balancer_vips:
            yield Fenced(vip, port.protocol.lower(), port.port)


def _node_may_dial(served: ServedPort, node_ip: str) -> bool:
    ranges = served.plan.port.load_balancer_source_ranges
    return any(addresses.contains(cidr, node_ip) for cidr in ranges)


def _check_range(served: ServedPort, cidr: str) -> None:
    if addresses.is_zero_network(cidr):
        msg = (
            f"Service {served.plan.name.service}: the IPVS mode cannot express the source range {cidr}: a set of type "
            "hash:ip,port,net holds no network of length 0; leave loadBalancerSourceRanges out, or halve the range"
        )
        raise UsageError(msg)


def _check_size(name: str, count: int) -> None:
    if SETS[name].type != BITMAP and count > MOST_ENTRIES:
        msg = (
            f"the IPVS mode cannot express these Services: {count} entries belong into ipset {name}, which kube-proxy "
            f"makes for {MOST_ENTRIES}; render fewer Services"
        )
        raise UsageError(msg)
