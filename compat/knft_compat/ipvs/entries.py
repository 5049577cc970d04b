"""The entries of kube-proxy's ipsets (docs/behaviour/ipvs.md#ipsets)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.model import addresses
from knft.model.names import NamespacedName
from knft.protocols import Protocol
from knft_compat.ipvs.claims import claims, node_port_addresses
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
from knft_compat.ipvs.sets import MAX_ENTRIES, SETS, FilledSet, FilledSets
from knft_compat.sync_input import PlannedPort, SyncInput


class DeniedFrontend(Struct, frozen=True):
    """A load balancer IP and port that this node may not connect to: no source range contains the node's address."""

    address: str
    protocol: str
    port: int


class SetEntries(Struct, frozen=True):
    """The entries of each set, by its IPv4 name, and the denied frontends, in the order of Service ports.

    ``warnings`` name the Services whose entries do not fit into a set.
    """

    sets: dict[str, tuple[str, ...]]
    denied_frontends: tuple[DeniedFrontend, ...]
    warnings: tuple[str, ...] = ()


Entry = tuple[str, str]
"""A set's IPv4 name, and an entry."""


def set_entries(sync_input: SyncInput, features: Features) -> SetEntries:
    """Return the entries of all sets; entries that do not fit into a full set are left out, as in kube-proxy."""
    found: dict[str, dict[str, NamespacedName]] = {name: {} for name in SETS if name not in features.missing_sets}
    for planned in sync_input.ports:
        for name, entry in _port_entries(planned, sync_input):
            found[name].setdefault(entry, planned.plan.name.service)
    for claim in claims(sync_input, features) if BOUND_IPS in found else ():
        if claim.is_bound:
            found[BOUND_IPS].setdefault(claim.address, claim.service)
    # kube-proxy writes a rule for each Service that claims the address; no packet reaches the second one.
    denied_frontends = (
        item for planned in sync_input.ports for item in _denied_frontends(planned, sync_input.node.ip_or_loopback)
    )
    return SetEntries(
        {name: tuple(members)[:MAX_ENTRIES] for name, members in found.items()},
        tuple(dict.fromkeys(denied_frontends)),
        tuple(
            _full_set_warning(SETS[name].name_in(sync_input.family), tuple(members.values())[MAX_ENTRIES:])
            for name, members in found.items()
            if len(members) > MAX_ENTRIES
        ),
    )


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


def _full_set_warning(own_name: str, left_out: tuple[NamespacedName, ...]) -> str:
    services = tuple(dict.fromkeys(map(str, left_out)))
    more = f" and {len(services) - 1} more" if len(services) > 1 else ""
    return (
        f"ipset {own_name} is full: kube-proxy creates it for {MAX_ENTRIES} entries; {len(left_out)} entries are left "
        f"out, of Service {services[0]}{more}"
    )
