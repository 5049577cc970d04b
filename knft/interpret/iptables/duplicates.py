"""Removes the tables of iptables-nft from what nft lists, because iptables-save prints the same rules."""

from msgspec.structs import replace

from knft.interpret.iptables.built_in import TABLES
from knft.interpret.rules import RuleSet


def without_duplicate_tables(listed: RuleSet, saved: RuleSet) -> RuleSet:
    """Return what nft lists without the tables that iptables-save printed, too.

    A table belongs to iptables-nft if it has the name of an iptables table and all its base chains are built-in chains.
    """
    family = "ip" if listed.version == 4 else "ip6"  # noqa: PLR2004 - of IPv4
    printed = {chain.partition(" ")[0] for chain in saved.chains}
    duplicates = tuple(
        f"{family} {table} " for table in TABLES if table in printed and _is_iptables(listed, family, table)
    )
    if not duplicates:
        return listed
    return replace(
        listed,
        base_chains=tuple(base for base in listed.base_chains if not base.chain.startswith(duplicates)),
        chains={name: chain for name, chain in listed.chains.items() if not name.startswith(duplicates)},
    )


def _is_iptables(listed: RuleSet, family: str, table: str) -> bool:
    prefix = f"{family} {table} "
    bases = [base.chain.removeprefix(prefix) for base in listed.base_chains if base.chain.startswith(prefix)]
    return all(name in TABLES[table] for name in bases)
