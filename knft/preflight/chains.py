"""Checks the base chains of other programs at the hooks of knft's."""

import shlex
from collections.abc import Iterable, Iterator

from knft.config import Config
from knft.families import Family
from knft.kernel.base_chains import BaseChain
from knft.leftovers.names import TABLES
from knft.nft.objects import Hook
from knft.preflight.facts import RuleFacts, Unread
from knft.preflight.report import Finding, not_checked
from knft.render.layout import constant_chains
from knft.render.names import TABLE

OWN_TABLES: frozenset[tuple[str, str]] = frozenset({*TABLES, *((family.nft, TABLE) for family in Family)})
"""kube-proxy's tables and knft's."""
_MAX_NAMED = 6


def check_base_chains(rules: RuleFacts, config: Config) -> Iterator[Finding]:
    """Yield which base chains of other programs run before knft's, or at their priority."""
    if isinstance(rules.base_chains, Unread):
        yield not_checked("base chains", rules.base_chains)
        return
    hooks = [chain.hook for chain in constant_chains(Family.IPV4, config) if chain.hook is not None]
    others = [chain for chain in rules.base_chains if (chain.family, chain.table) not in OWN_TABLES]
    nat = [chain for chain in others if chain.type == "nat"]
    at_hooks = [(chain, own) for chain in nat for own in hooks if _is_at_nat_hook(chain, own)]
    yield from (_early_chain(chain, own) for chain, own in at_hooks if chain.priority <= own.priority)
    later = [chain for chain, own in at_hooks if chain.priority > own.priority]
    if later:
        yield Finding("ok", f"knft translates packets before {_names(later)}")
    beside = [chain for chain in others if any(_is_beside(chain, own) for own in hooks)]
    if beside:
        text = (
            f"at the hooks and priorities of knft's filter chains: {_names(beside)}; the order does not matter, "
            "because a packet that one of them drops is dropped"
        )
        yield Finding("ok", text)
    if not (at_hooks or beside):
        yield Finding("ok", "no base chain of another program has a hook and priority of knft's")


def _is_at_nat_hook(chain: BaseChain, own: Hook) -> bool:
    return own.type == "nat" and chain.hook == own.hook


def _is_beside(chain: BaseChain, own: Hook) -> bool:
    return chain.type != "nat" and own.type == "filter" and (chain.hook, chain.priority) == (own.hook, own.priority)


def _early_chain(chain: BaseChain, own: Hook) -> Finding:
    where = f"{_name(chain)} (type nat, hook {chain.hook}, priority {chain.priority})"
    if chain.priority < own.priority:
        order = f"runs before knft's chain at priority {own.priority}"
    else:
        order = "has the hook and priority of knft's chain: the one that was loaded last runs first"
    effect = "masquerades" if chain.hook == "postrouting" else "translates"
    command = shlex.join(("nft", "list", "chain", chain.family, chain.table, chain.name))
    remedy = (
        f"look at its rules with `{command}`: they should not match packets of Services; or give "
        f"the chain a priority above {own.priority}"
    )
    return Finding("warning", f"{where} {order}; knft does not change packets that this chain {effect}", remedy)


def _name(chain: BaseChain) -> str:
    return f"{chain.family} {chain.table} {chain.name}"


def _names(chains: Iterable[BaseChain]) -> str:
    names = list(dict.fromkeys(map(_name, chains)))
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
