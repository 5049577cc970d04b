"""Tables of iptables-nft as ``nft`` lists them: the same rules that iptables-save prints, in nft's words."""

from msgspec.structs import replace

from knft.interpret.iptables.built_in import TABLES
from knft.interpret.rules import RuleSet


def without_saved(listed: RuleSet, saved: RuleSet) -> RuleSet:
    """Return what nft lists without the tables that iptables-save has printed as well.

    A table is iptables' where all its base chains have the kernel's names, as nobody else's need have.
    """
    family = "ip" if listed.version == 4 else "ip6"  # noqa: PLR2004 - of IPv4
    printed = {chain.partition(" ")[0] for chain in saved.chains}
    twice = tuple(f"{family} {table} " for table in TABLES if table in printed and _is_iptables(listed, family, table))
    if not twice:
        return listed
    return replace(
        listed,
        bases=tuple(base for base in listed.bases if not base.chain.startswith(twice)),
        chains={name: chain for name, chain in listed.chains.items() if not name.startswith(twice)},
    )


def _is_iptables(listed: RuleSet, family: str, table: str) -> bool:
    prefix = f"{family} {table} "
    bases = [base.chain.removeprefix(prefix) for base in listed.bases if base.chain.startswith(prefix)]
    return all(name in TABLES[table] for name in bases)
