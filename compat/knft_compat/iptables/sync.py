"""A sync of the iptables mode: all that it hands to the kernel, in order (D.3 to D.7)."""

from collections.abc import Iterable

from knft.model.names import NamespacedName
from knft_compat.cluster import Cluster
from knft_compat.iptables.chains import own_rules
from knft_compat.iptables.counters import EnsureCounters
from knft_compat.iptables.fixed import (
    COUNT_INVALID,
    FILTER_CHAINS,
    NAT_CHAINS,
    forwarding,
    localhost_guard,
    node_port_jumps,
)
from knft_compat.iptables.jump_table import JUMPS, KUBELET_JUMPS
from knft_compat.iptables.names import KUBELET_FIREWALL
from knft_compat.iptables.port import Port, port_of
from knft_compat.iptables.portals import COUNT_LOCALHOST, filter_portals, nat_portals
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.stale import made_chains, stale_chains
from knft_compat.iptables.terms import Terms, terms_of
from knft_compat.jumps import EnsureJumps
from knft_compat.page import Page, Sysctl, Sysctls
from knft_compat.rules import Deletion, Line, Restore, TableInput, marking, masquerading

_ROUTE_LOCALNET = Sysctl("net/ipv4/conf/all/route_localnet", 1)


def sync(cluster: Cluster, settings: Settings) -> Page:
    """Return what a sync hands to the kernel: a full one, or a partial one where it is said what has changed.

    Sysctl, jumps and counters belong to full syncs; a partial one has those parts, without content.
    """
    terms = terms_of(cluster, settings)
    changed = _changed(cluster, settings)
    ports = tuple(map(port_of, cluster.ports))
    written = [changed is None or port.name.service in changed for port in ports]
    nat = _nat_table(cluster, terms, list(zip(ports, written, strict=True)), _there(cluster, settings))
    is_full = changed is None
    return Page(
        "iptables",
        cluster.family,
        (
            Sysctls((_ROUTE_LOCALNET,) if is_full and terms.localhost else ()),
            EnsureJumps(cluster.family, (*JUMPS, *KUBELET_JUMPS) if is_full else ()),
            EnsureCounters((COUNT_INVALID, COUNT_LOCALHOST) if is_full and terms.has_nfacct else ()),
            Restore(cluster.family, (_filter_table(ports, terms, settings), nat)),
        ),
    )


def _changed(cluster: Cluster, settings: Settings) -> frozenset[NamespacedName] | None:
    """Return the Services that a partial sync writes chains of, None for a full sync.

    A Service that is not there may be among them: it has gone since the sync before. In another zone, endpoints are
    chosen anew for all (A.7).
    """
    if cluster.has_moved:
        return None
    if cluster.before is None:
        return settings.changed
    return cluster.changed_since() | (settings.changed or frozenset())


def _there(cluster: Cluster, settings: Settings) -> tuple[str, ...]:
    """Return the chains of the nat table: what iptables-save showed, or else what the sync before has left."""
    if settings.existing is not None:
        return settings.existing.chains(cluster.family, "nat")
    return made_chains(cluster.before or ())


def _filter_table(ports: Iterable[Port], terms: Terms, settings: Settings) -> TableInput:
    chains, lines = list(FILTER_CHAINS), list[Line]()
    if terms.localhost:
        chains.append(KUBELET_FIREWALL)
        lines.append(localhost_guard())
    for port in ports:
        lines += filter_portals(port)
    lines += forwarding(terms, settings)
    return TableInput("filter", tuple(chains), tuple(lines))


def _nat_table(cluster: Cluster, terms: Terms, ports: Iterable[tuple[Port, bool]], there: Iterable[str]) -> TableInput:
    """Return the nat table; a Service port's own chains are in it only where its flag says so."""
    chains = list(NAT_CHAINS)
    lines: list[Line] = [*masquerading(terms.masquerade), marking(terms.masquerade)]
    active: set[str] = set()
    for port, is_written in ports:
        active.update(port.own_chains)
        lines += nat_portals(port, terms)
        if is_written:
            chains += port.own_chains
            lines += own_rules(port, terms)
    stale = stale_chains(there, active)
    # A line for a chain empties it, and only an empty chain can be deleted.
    chains += stale
    lines += map(Deletion, stale)
    lines += node_port_jumps(cluster.node, terms)
    return TableInput("nat", tuple(chains), tuple(lines))
