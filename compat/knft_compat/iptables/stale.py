"""Finds chains of Service ports and endpoints that no longer exist (docs/behaviour/iptables.md#after-the-services)."""

from collections.abc import Collection, Iterable

from knft_compat.iptables.names import is_service_port_chain
from knft_compat.iptables.port import render_port
from knft_compat.sync_input import PlannedPort


def stale_chains(existing: Iterable[str], active: Collection[str]) -> tuple[str, ...]:
    """Return the chains of the nat table that a sync deletes, sorted; kube-proxy's order is random.

    In large clusters kube-proxy looks for stale chains once in a sync period. Here every sync does, like the first sync
    of a process.
    """
    return tuple(sorted({chain for chain in existing if is_service_port_chain(chain) and chain not in active}))


def chains_of_ports(ports: Iterable[PlannedPort]) -> tuple[str, ...]:
    """Return the chains that a sync creates for ``ports``."""
    return tuple(chain for port in ports for chain in render_port(port).chain_names)
