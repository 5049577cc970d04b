"""From a listing to a rule set: the order of the steps, and where errors get their place."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from knft.interpret.nftables.chains import base_chain
from knft.interpret.nftables.document import ListedChain, ListedRule, Listing, decode, place
from knft.interpret.nftables.problems import Malformed, capture_error
from knft.interpret.nftables.rule import RuleReader
from knft.interpret.nftables.scope import Names, full_name
from knft.interpret.nftables.written import written
from knft.interpret.rules import BaseChain, Chain, IpVersion, Rule, RuleSet

_FAMILIES: dict[int, frozenset[str]] = {4: frozenset({"ip", "inet"}), 6: frozenset({"ip6", "inet"})}
_Result = TypeVar("_Result")


def read(document: bytes | str, version: IpVersion) -> RuleSet:
    """Return the rules of one IP family that ``nft -j list ruleset`` lists; raises CaptureError."""
    listing = decode(document, _FAMILIES[version])
    names = _names(listing, version)
    reader = RuleReader(names)
    rules: dict[str, list[Rule]] = {_chain_name(chain): [] for _, chain in listing.chains}
    for number, listed in listing.rules:
        chain = full_name(listed.family, listed.table, listed.chain)
        if chain not in rules:
            raise capture_error(_place_of_rule(number, listed), f"there is no chain {chain}")
        rules[chain] += _placed(reader.read, listed, lambda: _place_of_rule(number, listed))  # noqa: B023 - called here
    chains = {name: Chain(name, tuple(found)) for name, found in rules.items()}
    return RuleSet(version=version, bases=_bases(listing), chains=chains, collections=names.collections)


def _names(listing: Listing, version: IpVersion) -> Names:
    held = {full_name(it.family, it.table, it.name): it for _, it in listing.containers}
    changes = written((rule for _, rule in listing.rules), version)
    return Names(version, map(_chain_name, (chain for _, chain in listing.chains)), held, changes)


def _chain_name(chain: ListedChain) -> str:
    return full_name(chain.family, chain.table, chain.name)


def _bases(listing: Listing) -> tuple[BaseChain, ...]:
    """Return base chains, the youngest first; those of a dormant table are not entered.

    Listings have them in the order in which they were made; of one priority, the kernel enters the youngest first.
    """
    dormant = {table.id for table in listing.tables if table.dormant}
    found = (
        _placed(base_chain, chain, lambda: place(number, "chain", (chain.family, chain.table, chain.name)))  # noqa: B023
        for number, chain in reversed(listing.chains)
        if (chain.family, chain.table) not in dormant
    )
    return tuple(base for base in found if base is not None)


def _place_of_rule(number: int, rule: ListedRule) -> str:
    return place(number, "rule", (rule.family, rule.table, rule.chain), rule.handle)


def _placed(read_one: Callable[..., _Result], listed: ListedChain | ListedRule, where: Callable[[], str]) -> _Result:
    """Read one object; say where it stands if it cannot be."""
    try:
        return read_one(listed)
    except (Malformed, msgspec.MsgspecError, UnicodeError) as error:
        raise capture_error(where(), error) from error
    except RecursionError as error:
        raise capture_error(where(), "nested too deeply") from error
