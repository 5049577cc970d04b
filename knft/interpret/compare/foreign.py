"""What of a captured rule set is neither kube-proxy's nor knft's: it stays in force whichever of the two is there."""

from typing import Literal

from msgspec.structs import replace

from knft.interpret.ranges import Ranges, contains
from knft.interpret.rules import Chain, Rule, RuleSet, Verdict
from knft.takeover.names import TABLES, chain_owners

_LEADING: tuple[Literal["jump", "goto"], ...] = ("jump", "goto")
_OWN_TABLES = frozenset((*(f"{family} {name}" for family, name in TABLES), "ip knft", "ip6 knft"))

_FAMILIES = frozenset(("", "ip", "ip6"))
"""What stands in front of iptables' tables: nothing in iptables-save, the family where nft lists them."""


def foreign_rules(rules: RuleSet, own: Ranges) -> RuleSet:
    """Return a rule set without kube-proxy's chains, tables and virtual servers, and without knft's tables.

    Virtual servers are kube-proxy's at the addresses of its device, and at those of the node (``own``).
    """
    gone = frozenset(name for name in rules.chains if is_owned_chain(name))
    jumps = frozenset(Verdict(kind, name) for name in gone for kind in _LEADING)
    chains = {name: _without(chain, jumps) for name, chain in rules.chains.items() if name not in gone}
    served = rules.ipvs_addresses, own
    return replace(
        rules,
        base_chains=tuple(base for base in rules.base_chains if base.chain not in gone),
        chains=chains,
        servers=tuple(item for item in rules.servers if not any(contains(where, item.address) for where in served)),
        ipvs_addresses=(),
    )


def is_owned_chain(chain: str) -> bool:
    """Tell whether a chain is kube-proxy's or knft's, by its full name: iptables' own, or nft's with the family."""
    table, _, name = chain.rpartition(" ")
    family, _, of_iptables = table.rpartition(" ")
    return table in _OWN_TABLES or (family in _FAMILIES and bool(chain_owners(of_iptables, name)))


def _without(chain: Chain, jumps: frozenset[Verdict]) -> Chain:
    kept = tuple(rule for rule in chain.rules if not _leads_to(rule, jumps))
    return chain if len(kept) == len(chain.rules) else replace(chain, rules=kept)


def _leads_to(rule: Rule, targets: frozenset[Verdict]) -> bool:
    return any(isinstance(step, Verdict) and step in targets for step in rule.steps)
