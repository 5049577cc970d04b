"""Chains of Service ports and endpoints that are no more (D.6)."""

from collections.abc import Collection, Iterable

from knft_compat.cluster import ServedPort
from knft_compat.iptables.names import is_service_chain
from knft_compat.iptables.port import port_of


def stale_chains(there: Iterable[str], active: Collection[str]) -> tuple[str, ...]:
    """Return the chains of the nat table that a sync deletes, sorted, where kube-proxy has them in any order.

    In large clusters kube-proxy looks for them only if a sync period has passed since it last did. Here it always has,
    as in the first sync of a process.
    """
    return tuple(sorted({chain for chain in there if is_service_chain(chain) and chain not in active}))


def made_chains(ports: Iterable[ServedPort]) -> tuple[str, ...]:
    """Return the chains that a sync of ``ports`` makes for them."""
    return tuple(chain for port in ports for chain in port_of(port).own_chains)
