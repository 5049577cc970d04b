"""Finds kube-proxy's chains and jumps in iptables, and makes the input of iptables-restore that removes them.

Modes iptables and ipvs have some chains in common. A shared chain is removed unless the other mode, which is not being
removed, has chains of its own in this backend.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from knft.leftovers.names import SETS, modes_of_chain
from knft.leftovers.saved import SavedRule, SavedRules, SavedTable
from knft.proxy_mode import Mode


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """The changes to one IP family of one backend: what to remove, and what stays."""

    restore_input: str
    """Input of ``iptables-restore --noflush``; "" if there is nothing to remove."""
    chain_count: int
    """Number of chains that it deletes."""
    rule_count: int
    """Number of rules that it deletes from chains that stay."""
    shared_chain_count: int
    """Number of chains that stay because another mode with leftovers here uses them too."""
    chains_in_use: tuple[str, ...]
    """Chains that stay because a chain of another program jumps to them: table and name."""
    sets_in_use: frozenset[str]
    """kube-proxy's ipsets that remaining rules use."""


@dataclass(frozen=True, slots=True)
class _TablePlan:
    """The changes to one table: chains to delete, rules to delete from other chains, and what stays."""

    chains: tuple[str, ...]
    rules: tuple[SavedRule, ...]
    chains_in_use: tuple[str, ...]
    sets_in_use: frozenset[str]


def plan_chains(saved: SavedRules, modes: Collection[Mode]) -> ChainPlan:
    """Return how to remove what ``modes`` left in ``saved``."""
    modes_to_remove = frozenset(modes)
    removes_shared = (_modes_present(saved.tables) or {Mode.IPTABLES}) <= modes_to_remove
    plans = {table.name: _plan_table(table, modes_to_remove, removes_shared=removes_shared) for table in saved.tables}
    return ChainPlan(
        restore_input="".join(_restore_text(name, plan) for name, plan in plans.items()),
        chain_count=sum(len(plan.chains) for plan in plans.values()),
        rule_count=sum(len(plan.rules) for plan in plans.values()),
        shared_chain_count=0 if removes_shared else sum(_count_shared(table) for table in saved.tables),
        chains_in_use=tuple(f"{name} {chain}" for name, plan in plans.items() for chain in plan.chains_in_use),
        sets_in_use=frozenset().union(*(plan.sets_in_use for plan in plans.values())),
    )


def _modes_present(tables: Iterable[SavedTable]) -> frozenset[Mode]:
    """Return the modes with chains here that no other mode makes."""
    modes_by_chain = [modes_of_chain(table.name, chain) for table in tables for chain in table.chains]
    return frozenset(mode for modes in modes_by_chain if len(modes) == 1 for mode in modes)


def _count_shared(table: SavedTable) -> int:
    return sum(len(modes_of_chain(table.name, chain)) > 1 for chain in table.chains)


def _plan_table(table: SavedTable, modes: frozenset[Mode], *, removes_shared: bool) -> _TablePlan:
    modes_by_chain = {chain: owning for chain in table.chains if (owning := modes_of_chain(table.name, chain))}
    removable = {
        chain for chain, owning in modes_by_chain.items() if (owning <= modes if len(owning) == 1 else removes_shared)
    }
    still_in_use = _chains_in_use(table, modes_by_chain, removable)
    # A jump from a built-in chain is removed even if its target has to stay: then packets no longer reach it.
    remaining_chains = table.built_in | (modes_by_chain.keys() - removable)
    rules = tuple(
        rule
        for rule in table.rules
        if rule.chain in remaining_chains and (rule.target in removable or _is_ipvs_rule(rule, modes_by_chain, modes))
    )
    removed = removable - still_in_use
    removed_rules = set(map(id, rules))
    remaining_rules = (rule for rule in table.rules if rule.chain not in removed and id(rule) not in removed_rules)
    in_use = SETS.intersection(name for rule in remaining_rules for name in rule.sets)
    return _TablePlan(
        chains=tuple(chain for chain in table.chains if chain in removed),
        rules=rules,
        chains_in_use=tuple(chain for chain in table.chains if chain in still_in_use),
        sets_in_use=in_use,
    )


def _is_ipvs_rule(rule: SavedRule, own_chains: Collection[str], modes: frozenset[Mode]) -> bool:
    """Return whether mode ipvs made the rule and is removed; the chain may be shared with mode iptables."""
    return Mode.IPVS in modes and rule.chain in own_chains and not rule.sets.isdisjoint(SETS)


def _chains_in_use(table: SavedTable, own_chains: Collection[str], removable: Collection[str]) -> frozenset[str]:
    """Return the removable chains that chains of other programs jump to, directly or through other chains."""
    jumps: dict[str, set[str]] = {}
    for rule in table.rules:
        if rule.target is not None and rule.target in removable:
            jumps.setdefault(rule.chain, set()).add(rule.target)
    foreign = jumps.keys() - table.built_in - set(own_chains)
    in_use: set[str] = set()
    pending = {target for chain in foreign for target in jumps[chain]}
    while pending:
        in_use |= pending
        pending = {target for chain in pending for target in jumps.get(chain, ())} - in_use
    return frozenset(in_use)


def _restore_text(table: str, plan: _TablePlan) -> str:
    if not (plan.chains or plan.rules):
        return ""
    # Declaring a chain flushes it. All chains are flushed first, so that they can be deleted in any order.
    lines = [
        f"*{table}",
        *(f":{chain} - [0:0]" for chain in plan.chains),
        *(f"-D {rule.chain} {rule.text}" for rule in plan.rules),
        *(f"-X {chain}" for chain in plan.chains),
        "COMMIT\n",
    ]
    return "\n".join(lines)
