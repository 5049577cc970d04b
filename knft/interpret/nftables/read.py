"""Reads a listing into a ``RuleSet``, and adds the place in the listing to errors."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.nftables.chains import read_base_chain
from knft.interpret.nftables.listing import (
    ListedChain,
    ListedRule,
    ListedRuleset,
    capture_error,
    decode_ruleset,
    object_place,
)
from knft.interpret.nftables.rule import RuleReader
from knft.interpret.nftables.rule_writes import find_rule_writes
from knft.interpret.nftables.scope import NamedObjects, full_name
from knft.interpret.rules import BaseChain, Chain, Rule, RuleSet

_FAMILIES: dict[int, frozenset[str]] = {4: frozenset({"ip", "inet"}), 6: frozenset({"ip6", "inet"})}
_Result = TypeVar("_Result")


def read(listing: bytes | str, version: IpVersion) -> RuleSet:
    """Return the rules of one IP family in the output of ``nft -j list ruleset``; raise CaptureError."""
    ruleset = decode_ruleset(listing, _FAMILIES[version])
    objects = _named_objects(ruleset, version)
    reader = RuleReader(objects)
    rules: dict[str, list[Rule]] = {_chain_name(chain): [] for _, chain in ruleset.chains}
    for number, listed in ruleset.rules:
        chain = full_name(listed.family, listed.table, listed.chain)
        if chain not in rules:
            raise capture_error(_rule_place(number, listed), f'no chain "{chain}" in the listing')
        rules[chain] += _read_at(reader.read, listed, lambda: _rule_place(number, listed))  # noqa: B023 - called here
    chains = {name: Chain(name, tuple(found)) for name, found in rules.items()}
    return RuleSet(version=version, base_chains=_base_chains(ruleset), chains=chains, collections=objects.collections)


def _named_objects(ruleset: ListedRuleset, version: IpVersion) -> NamedObjects:
    containers = {full_name(it.family, it.table, it.name): it for _, it in ruleset.sets_and_maps}
    writes = find_rule_writes((rule for _, rule in ruleset.rules), version)
    return NamedObjects(version, map(_chain_name, (chain for _, chain in ruleset.chains)), containers, writes)


def _chain_name(chain: ListedChain) -> str:
    return full_name(chain.family, chain.table, chain.name)


def _base_chains(ruleset: ListedRuleset) -> tuple[BaseChain, ...]:
    """Return base chains, the newest first, without those of dormant tables.

    nft lists them in the order of their creation. The kernel runs the newest of equal priority first.
    """
    dormant = {table.id for table in ruleset.tables if table.is_dormant}
    found = (
        _read_at(read_base_chain, chain, lambda: object_place(number, "chain", (chain.family, chain.table, chain.name)))  # noqa: B023
        for number, chain in reversed(ruleset.chains)
        if (chain.family, chain.table) not in dormant
    )
    return tuple(base for base in found if base is not None)


def _rule_place(number: int, rule: ListedRule) -> str:
    return object_place(number, "rule", (rule.family, rule.table, rule.chain), rule.handle)


def _read_at(read_one: Callable[..., _Result], listed: ListedChain | ListedRule, place: Callable[[], str]) -> _Result:
    """Read one object; add its place to an error."""
    try:
        return read_one(listed)
    except (CaptureError, msgspec.MsgspecError, UnicodeError) as error:
        raise capture_error(place(), error) from error
    except RecursionError as error:
        raise capture_error(place(), "nested too deeply") from error
