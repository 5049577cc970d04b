"""The entries of kube-proxy's ipsets (docs/behaviour/ipvs.md#ipsets)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.errors import UsageError
from knft.model import addresses
from knft.protocols import Protocol
from knft_compat.ipvs.claims import bound_addresses, claims, node_port_addresses
from knft_compat.ipvs.names import (
    BOUND_IPS,
    CLUSTER_IPS,
    EXTERNAL_IPS,
    HAIRPINS,
    HEALTH_CHECK_NODE_PORTS,
    LOAD_BALANCER_SET,
    LOCAL_EXTERNAL_IPS,
    LOCAL_LOAD_BALANCERS,
    LOCAL_NODE_PORT_SETS,
    NODE_PORT_SETS,
    SOURCE_CIDRS,
    SOURCE_IPS,
    SOURCE_RESTRICTED_LOAD_BALANCERS,
)
from knft_compat.ipvs.rule_versions import Features
from knft_compat.ipvs.sets import BITMAP, MAX_ENTRIES, SETS, FilledSet, FilledSets
from knft_compat.sync_input import PlannedPort, SyncInput


class DeniedFrontend(Struct, frozen=True):
    """A load balancer IP and port that this node may not connect to: no source range contains the node's address."""

    address: str
    protocol: str
    port: int


class SetEntries(Struct, frozen=True):
    """The entries of each set, by its IPv4 name, and the denied frontends, in the order of Service ports."""

    sets: dict[str, tuple[str, ...]]
    denied_frontends: tuple[DeniedFrontend, ...]


Entry = tuple[str, str]
"""A set's IPv4 name, and an entry."""


def set_entries(sync_input: SyncInput, features: Features) -> SetEntries:
    """Return the entries of all sets; raise UsageError for an entry that a set cannot hold."""
    found: dict[str, dict[str, None]] = {name: {} for name in SETS if name not in features.missing_sets}
    for planned in sync_input.ports:
        for name, entry in _port_entries(planned, sync_input):
            found[name][entry] = None
    if BOUND_IPS in found:
        found[BOUND_IPS] = dict.fromkeys(bound_addresses(tuple(claims(sync_input, features))))
    for name, members in found.items():
        _check_size(name, len(members))
    # kube-proxy writes a rule for each Service that claims the address; no packet reaches the second one.
    denied_frontends = (
        item for planned in sync_input.ports for item in _denied_frontends(planned, sync_input.node.ip_or_loopback)
    )
    return SetEntries({name: tuple(members) for name, members in found.items()}, tuple(dict.fromkeys(denied_frontends)))


def filled_sets(sync_input: SyncInput, entries: SetEntries, previous: SetEntries | None) -> FilledSets:
    """Return the sets with their entries; entries that only ``previous`` has are stale."""
    filled = []
    for name, members in entries.sets.items():
        kind, current = SETS[name], frozenset(members)
        previous_members = () if previous is None else previous.sets[name]
        stale = tuple(entry for entry in previous_members if entry not in current)
        own_name = kind.name_in(sync_input.family)
        filled.append(FilledSet(own_name, kind.type, sync_input.family, kind.comment, members, stale))
    return FilledSets(tuple(filled))


def _port_entries(planned: PlannedPort, sync_input: SyncInput) -> Iterator[Entry]:
    port = planned.plan.port
    protocol = port.protocol.lower()
    for endpoint in planned.endpoints:
        if endpoint.is_local:
            yield HAIRPINS, f"{endpoint.address},{protocol}:{endpoint.port},{endpoint.address}"
    yield CLUSTER_IPS, f"{port.cluster_ip},{protocol}:{port.port}"
    for address in port.external_ips:
        name = LOCAL_EXTERNAL_IPS if port.external_policy_local else EXTERNAL_IPS
        yield name, f"{address},{protocol}:{port.port}"
    for vip in port.load_balancer_vips:
        yield from _load_balancer_entries(planned, vip, sync_input.node.ip_or_loopback)
    if port.node_port and not (accepting := node_port_addresses(sync_input.node)):
        return  # kube-proxy skips the rest of such a port, including its health check.
    if port.node_port:
        yield from _node_port_entries(port.protocol, port.node_port, accepting, local=port.external_policy_local)
    if port.health_check_node_port:
        yield HEALTH_CHECK_NODE_PORTS, str(port.health_check_node_port)


def _load_balancer_entries(planned: PlannedPort, vip: str, node_ip: str) -> Iterator[Entry]:
    port = planned.plan.port
    entry = f"{vip},{port.protocol.lower()}:{port.port}"
    yield LOAD_BALANCER_SET, entry
    if port.external_policy_local:
        yield LOCAL_LOAD_BALANCERS, entry
    if port.load_balancer_source_ranges:
        yield SOURCE_RESTRICTED_LOAD_BALANCERS, entry
    for cidr in port.load_balancer_source_ranges:
        _check_range(planned, cidr)
        yield SOURCE_CIDRS, f"{entry},{cidr}"
    if _node_is_in_source_ranges(planned, node_ip):
        yield SOURCE_IPS, f"{entry},{vip}"


def _node_port_entries(protocol: Protocol, number: int, accepting: tuple[str, ...], *, local: bool) -> Iterator[Entry]:
    is_hash = protocol == "SCTP"
    members = [f"{address},sctp:{number}" for address in accepting] if is_hash else [str(number)]
    for name in (NODE_PORT_SETS[protocol], *([LOCAL_NODE_PORT_SETS[protocol]] if local else [])):
        for member in members:
            yield name, member


def _denied_frontends(planned: PlannedPort, node_ip: str) -> Iterator[DeniedFrontend]:
    port = planned.plan.port
    if port.load_balancer_source_ranges and not _node_is_in_source_ranges(planned, node_ip):
        for vip in port.load_balancer_vips:
            yield DeniedFrontend(vip, port.protocol.lower(), port.port)


def _node_is_in_source_ranges(planned: PlannedPort, node_ip: str) -> bool:
    ranges = planned.plan.port.load_balancer_source_ranges
    return any(addresses.contains(cidr, node_ip) for cidr in ranges)


def _check_range(planned: PlannedPort, cidr: str) -> None:
    if addresses.is_zero_network(cidr):
        halves = "::/1 and 8000::/1" if ":" in cidr else "0.0.0.0/1 and 128.0.0.0/1"
        msg = (
            f"Service {planned.plan.name.service}: mode ipvs cannot use the source range {cidr}, since an ipset of "
            "type hash:ip,port,net cannot contain a network with prefix length 0; remove loadBalancerSourceRanges, or "
            f"split the range into {halves}"
        )
        raise UsageError(msg)


def _check_size(name: str, count: int) -> None:
    if SETS[name].type != BITMAP and count > MAX_ENTRIES:
        msg = (
            f"mode ipvs cannot have so many Services: ipset {name} needs {count} entries, but kube-proxy creates "
            f"it for at most {MAX_ENTRIES}; render fewer Services"
        )
        raise UsageError(msg)
