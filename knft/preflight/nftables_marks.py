"""Finds the rules of nftables tables that use the packet mark, in what ``nft -j list table`` prints."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_

from knft.interpret.nftables.listing import ListedRule, TableId, decode_ruleset
from knft.interpret.nftables.mark_bits import mark_bits
from knft.interpret.nftables.text import rule_text
from knft.leftovers.names import modes_of_chain
from knft.leftovers.saved import SavedRules
from knft.preflight.chains import OWN_TABLES
from knft.preflight.facts import MarkUse

_FAMILIES = frozenset({"ip", "ip6", "inet", "arp", "bridge", "netdev"})
_XTABLES_FAMILIES = {"iptables": "ip", "ip6tables": "ip6"}


def tables_to_read(existing: Iterable[TableId], saved: Mapping[str, SavedRules]) -> dict[TableId, frozenset[str]]:
    """Return the tables of other programs that iptables-save did not print completely, and the chains that it printed.

    ``saved`` is the output of each backend of iptables.
    """
    printed = {
        (_XTABLES_FAMILIES[program], table.name): (table, table.name in rules.incomplete_tables)
        for backend, rules in saved.items()
        if (program := backend.removesuffix("-nft")) in _XTABLES_FAMILIES
        for table in rules.tables
    }
    found: dict[TableId, frozenset[str]] = {}
    for name in sorted(set(existing) - OWN_TABLES):
        table, is_incomplete = printed.get(name, (None, True))
        if is_incomplete:
            found[name] = frozenset() if table is None else table.built_in.union(table.chains)
    return found


def mark_uses(listing: str, printed_chains: Collection[str] = ()) -> tuple[MarkUse, ...]:
    """Return the uses of the packet mark in a listed table; raise CaptureError.

    ``printed_chains`` are left out: iptables-save printed their rules, too.
    """
    rules = (rule for _, rule in decode_ruleset(listing, _FAMILIES).rules)
    return tuple(use for rule in rules if rule.chain not in printed_chains for use in _uses(rule))


def _uses(rule: ListedRule) -> Iterator[MarkUse]:
    if rule.family in _XTABLES_FAMILIES.values() and modes_of_chain(rule.table, rule.chain):
        return
    found = [mark_bits(statement) for statement in rule.expr]
    known = reduce(or_, (bits for bits in found if bits is not None), 0)
    for bits in ([known] if known else []) + ([None] if None in found else []):
        yield MarkUse(f"{rule.family} {rule.table}", rule.chain, bits, rule_text(rule.expr, rule.comment, 0))
