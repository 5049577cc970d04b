"""Checks whether other programs use the bit of the packet mark with which knft requests masquerading."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from knft.leftovers.names import modes_of_chain
from knft.leftovers.saved import SavedRule, SavedRules
from knft.preflight.facts import MarkUse, RuleFacts, Unread
from knft.preflight.report import Finding, not_checked

_ALL_BITS = 0xFFFFFFFF
_BITS = range(32)
_NUMBER = r"(0x[0-9a-f]+|\d+)"
_SET = re.compile(rf"--set-x?mark {_NUMBER}(?:/{_NUMBER})?")
_MATCH = re.compile(rf"-m mark (?:! )?--mark {_NUMBER}(?:/{_NUMBER})?")
_COPY = re.compile(rf"-j CONNMARK --(?:restore|save)-mark(?: --nfmask {_NUMBER})?")
_TPROXY = re.compile(rf"--tproxy-mark {_NUMBER}(?:/{_NUMBER})?")
_WRITES_ALL = re.compile(r"-m socket\b.* --restore-skmark|-j SET\b.* --map-mark|-j HMARK\b")
"""Matches of rules that may write every bit: with the mark of a socket, or of an entry of an ipset."""
_MAX_NAMED = 3


class _Use(Struct, frozen=True):
    """Bits of the mark that a rule reads or writes, and the rule as text."""

    bits: int
    text: str


def check_mark(rules: RuleFacts, bit: int) -> Iterator[Finding]:
    """Yield which rules use the bit, and which rules were not read."""
    in_nftables = _in_nftables(rules)
    known = (_Use(use.bits, _nftables_text(use)) for use in in_nftables if use.bits is not None)
    uses = [*_uses(rules.saved), *_routes(rules), *known]
    conflicts = [use for use in uses if use.bits >> bit & 1]
    mark = f"bit {bit} of the packet mark ({1 << bit:#x})"
    if conflicts:
        used = 0
        for use in uses:
            used |= use.bits if use.bits != _ALL_BITS else 0
        remedy = _remedy(used | _kube_proxy_bits(rules.saved))
        yield Finding("warning", f"other rules use {mark}, too: {_named(use.text for use in conflicts)}", remedy)
    else:
        yield Finding("ok", f"no rule that was read, except kube-proxy's, uses {mark}")
    yield from _other_bit_of_kube_proxy(rules.saved, bit)
    yield from _unclear([use for use in in_nftables if use.bits is None], mark)
    yield from _unread(rules, mark)


def _uses(saved: Mapping[str, SavedRules]) -> Iterator[_Use]:
    for backend, listed in saved.items():
        for table in listed.tables:
            for rule in table.rules:
                bits = 0 if modes_of_chain(table.name, rule.chain) else _bits(rule)
                if bits:
                    yield _Use(bits, f"{backend}, table {table.name}: -A {rule.chain} {rule.text}")


def _bits(rule: SavedRule) -> int:
    """Return the bits that a rule writes, and those that it compares."""
    found = 0
    if rule.target == "MARK" and (written := _SET.search(rule.text)):
        found |= _number(written[1], 0) | _number(written[2], _ALL_BITS)
    if rule.target == "TPROXY" and (written := _TPROXY.search(rule.text)):
        found |= _number(written[1], 0) | _number(written[2], _ALL_BITS)
    if copied := _COPY.search(rule.text):
        found |= _number(copied[1], _ALL_BITS)
    if _WRITES_ALL.search(rule.text):
        found |= _ALL_BITS
    for compared in _MATCH.finditer(rule.text):
        found |= _compared(_number(compared[1], 0), _number(compared[2], _ALL_BITS))
    return found


def _compared(mark: int, mask: int) -> int:
    """Return the compared bits; without a mask, a program means those that it sets."""
    return mark if mask == _ALL_BITS else mask


def _number(text: str | None, default: int) -> int:
    return default if text is None else int(text, 0)


def _routes(rules: RuleFacts) -> Iterator[_Use]:
    if isinstance(rules.mark_routes, Unread):
        return
    for route in rules.mark_routes:
        text = f"ip rule {route.priority} ({route.family.value}, fwmark {route.mark:#x}/{route.mask:#x})"
        yield _Use(_compared(route.mark, route.mask), text)


def _in_nftables(rules: RuleFacts) -> list[MarkUse]:
    if isinstance(rules.foreign_tables, Unread):
        return []
    return [use for uses in rules.foreign_tables.values() if isinstance(uses, tuple) for use in uses]


def _nftables_text(use: MarkUse) -> str:
    return f"nftables, table {use.table}, chain {use.chain}: {use.text}"


def _kube_proxy_bits(saved: Mapping[str, SavedRules]) -> int:
    """Return the bits with which kube-proxy's rules request masquerading."""
    found = 0
    for listed in saved.values():
        for table in listed.tables:
            for rule in table.rules:
                written = _SET.search(rule.text) if rule.chain == "KUBE-MARK-MASQ" and rule.target == "MARK" else None
                found |= _number(written[1], 0) if written else 0
    return found


def _other_bit_of_kube_proxy(saved: Mapping[str, SavedRules], bit: int) -> Iterator[Finding]:
    found = _kube_proxy_bits(saved)
    if found and found != 1 << bit:
        text = f"kube-proxy marks packets with {found:#x}, and knft would with {1 << bit:#x}"
        remedy = (
            "if rules of other programs use kube-proxy's mark, give knft its bit: masqueradeBit, or --masquerade-bit"
        )
        yield Finding("warning", text, remedy)


def _unclear(uses: list[MarkUse], mark: str) -> Iterator[Finding]:
    if uses:
        command = shlex.join(("nft", "list", "chain", *uses[0].table.split(" ", 1), uses[0].chain))
        text = f"knft cannot tell which bits of the packet mark these rules use: {_named(map(_nftables_text, uses))}"
        yield Finding("not checked", text, f"look for {mark} in `{command}`")


def _unread(rules: RuleFacts, mark: str) -> Iterator[Finding]:
    if rules.errors or not rules.saved:
        remedy = "do what point kube-proxy says about them, and run the command again"
        yield Finding("not checked", "not all rules of iptables were read: see kube-proxy", remedy)
    if isinstance(rules.mark_routes, Unread):
        yield not_checked("routing policy rules", rules.mark_routes)
    if isinstance(rules.foreign_tables, Unread):
        yield not_checked("nftables tables of other programs", rules.foreign_tables)
        return
    not_listed = [table for table, found in rules.foreign_tables.items() if found is None]
    if not_listed:
        command = shlex.join(("nft", "list", "table", *not_listed[0].split(" ", 1)))
        remedy = f"add --foreign-tables, which lists them with nft's library, or look for {mark} in `{command}`"
        text = f"rules of nftables tables of other programs were not read: {', '.join(not_listed)}"
        yield Finding("not checked", text, remedy)
    tables: dict[Unread, list[str]] = {}
    for table, found in rules.foreign_tables.items():
        if isinstance(found, Unread):
            tables.setdefault(found, []).append(table)
    for reason, names in tables.items():
        yield not_checked(f"nftables tables of other programs ({', '.join(names)})", reason)


def _named(texts: Iterable[str]) -> str:
    named = list(texts)
    hidden = len(named) - _MAX_NAMED
    more = f" and {hidden} more rule{'' if hidden == 1 else 's'}" if hidden > 0 else ""
    return "; ".join(named[:_MAX_NAMED]) + more


def _remedy(used: int) -> str:
    free = next((bit for bit in reversed(_BITS) if not used >> bit & 1), None)
    choice = "" if free is None else f", for example {free}, which no rule that was read uses"
    return f"use another bit{choice}: masqueradeBit in the configuration file, or --masquerade-bit"
