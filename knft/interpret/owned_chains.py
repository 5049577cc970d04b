"""Distinguishes the chains of kube-proxy and knft from those of other programs."""

from knft.leftovers.names import TABLES, modes_of_chain

_OWN_TABLES = frozenset((*(f"{family} {name}" for family, name in TABLES), "ip knft", "ip6 knft"))
_FAMILIES = frozenset(("", "ip", "ip6"))
"""The prefixes of iptables' tables: none in iptables-save output, the family in nft listings."""


def is_owned_chain(chain: str) -> bool:
    """Return whether a chain is kube-proxy's or knft's, by its full name as iptables-save or nft gives it."""
    table, _, name = chain.rpartition(" ")
    family, _, of_iptables = table.rpartition(" ")
    return table in _OWN_TABLES or (family in _FAMILIES and bool(modes_of_chain(of_iptables, name)))
