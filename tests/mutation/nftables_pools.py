"""Faults of endpoints and session affinity in mode nftables."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from knft_compat.nftables.expressions import match
from tests.mutation.nft_listing import NftListing, Object, find_statement, service_of_chain, service_of_element
from tests.mutation.nftables_common import FRONTENDS, Change, random_choice, remove_rule
from tests.mutation.operator import Expectation, Operator

_LOCAL_POD = re.compile(r"\b(10\.244\.1\.|fd00:10:244:1::)")


def _pool_rules(listed: NftListing) -> list[Object]:
    """Return the rules that choose among several endpoints."""
    return [*listed.rules("service-*", "numgen"), *listed.rules("local-*", "numgen")]


def _edit_random_choice(edit: Callable[[Object, list[Any], Random], None], least: int = 2) -> Change:
    """Return an operator that edits the random choice of a Service port."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        rules = [rule for rule in _pool_rules(listed) if len(random_choice(rule)[1]) >= least]
        if not rules:
            return None
        rule = random.choice(rules)
        edit(*random_choice(rule), random)
        return Expectation((service_of_chain(rule["rule"]["chain"]),))

    return change


def _drop_one(_: Object, elements: list[Any], random: Random) -> None:
    elements.pop(random.randrange(len(elements)))


def _drop_last(numgen: Object, elements: list[Any], _: Random) -> None:
    elements.pop()
    numgen["mod"] -= 1


def _increase_modulus(numgen: Object, _: list[Any], __: Random) -> None:
    numgen["mod"] += 1


def _choose_one_endpoint_twice(_: Object, elements: list[Any], __: Random) -> None:
    elements[0][1] = elements[1][1]


def _shift_offset(numgen: Object, _: list[Any], __: Random) -> None:
    numgen["offset"] = 1


def _foreign_endpoint(listed: NftListing, random: Random) -> Expectation | None:
    """Send some packets of a Service to an endpoint of another with the same layout."""
    rules = _pool_rules(listed)
    pairs = [
        (mine, other)
        for mine in rules
        for other in rules
        if service_of_chain(mine["rule"]["chain"]) != service_of_chain(other["rule"]["chain"])
        and ("vmap" in json.dumps(mine)) is ("vmap" in json.dumps(other))
        # Two ports of one Service may have the same endpoint.
        and random_choice(mine)[1][0][1] != random_choice(other)[1][0][1]
    ]
    if not pairs:
        return None
    mine, other = random.choice(pairs)
    random_choice(mine)[1][0][1] = random_choice(other)[1][0][1]
    return Expectation((service_of_chain(mine["rule"]["chain"]),))


def _translations(listed: NftListing) -> list[Object]:
    return [
        rule
        for rule in listed.rules("*", '"dnat"')
        if "fib" not in json.dumps(rule) and '"status"' not in json.dumps(rule)
    ]


def _edit_target(edit: Callable[[Any], Any], part: int) -> Change:
    """Edit the address (0) or the port (1) of one endpoint, in either layout."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        rule = random.choice(_translations(listed))
        translation = find_statement(rule, "dnat")["dnat"]
        if "map" in translation["addr"]:
            target = random.choice(translation["addr"]["map"]["data"]["set"])[1]["concat"]
            target[part] = edit(target[part])
        else:
            name = ("addr", "port")[part]
            translation[name] = edit(translation[name])
        return Expectation((service_of_chain(rule["rule"]["chain"]),))

    return change


def _unused_address(address: str) -> str:
    return "fd00:10:244:9::9" if ":" in address else "10.244.9.9"


def _hairpin_missing(listed: NftListing, random: Random) -> Expectation | None:
    elements = listed.elements("hairpin-connections")
    if not elements:
        return _hairpin_rule_missing(listed, random)
    element = elements.pop(random.randrange(len(elements)))
    end = element["concat"][0], element["concat"][3]
    rules = [rule for rule in _translations(listed) if f'"{end[0]}"' in json.dumps(rule)]
    return Expectation(tuple({service_of_chain(rule["rule"]["chain"]) for rule in rules}))


def _hairpin_rule_missing(listed: NftListing, random: Random) -> Expectation | None:
    rules = [
        rule for rule in listed.rules("endpoint-*", "saddr.*mark-for-masquerade") if _LOCAL_POD.search(json.dumps(rule))
    ]
    if not rules:
        return None
    rule = random.choice(rules)
    listed.remove(rule)
    return Expectation((service_of_chain(rule["rule"]["chain"]),))


def _timeout(listed: NftListing, random: Random) -> Expectation | None:
    sets = [item["set"] for item in listed.objects if item.get("set", {}).get("name", "").startswith("affinity-")]
    if not sets:
        return None
    found = random.choice(sets)
    found["timeout"] += 1
    return Expectation((service_of_chain(found["name"]),))


def _other_set(listed: NftListing, random: Random) -> Expectation | None:
    """Record clients in the set of another endpoint."""
    rules = listed.rules("endpoint-*", '"update"')
    if len(rules) < 2:
        return None
    one, other = random.sample(rules, 2)
    find_statement(one, "set")["set"]["set"] = find_statement(other, "set")["set"]["set"]
    return Expectation((service_of_chain(one["rule"]["chain"]),))


def _affinity_late(listed: NftListing, random: Random) -> Expectation | None:
    rules = [rule for rule in _pool_rules(listed) if listed.rules(rule["rule"]["chain"], "@affinity-")]
    if not rules:
        return None
    rule = random.choice(rules)
    listed.move_before(rule, listed.rules(rule["rule"]["chain"], "@affinity-")[0])
    return Expectation((service_of_chain(rule["rule"]["chain"]),))


def _uninterpreted_rule(listed: NftListing, random: Random) -> Expectation | None:
    """Insert an uninterpreted rule before the rules of a pool."""
    pool = random.choice(_pool_rules(listed))["rule"]["chain"]
    elements = [item for item in listed.elements(FRONTENDS) if service_of_chain(pool) == service_of_element(item)]
    if not elements:
        return None
    listed.insert(listed.rules(pool)[0], match({"ct": {"key": "helper"}}, "ftp"), {"accept": None})
    return Expectation((service_of_chain(pool),), line=-1)


def _endpoint_blocked(listed: NftListing, random: Random) -> Expectation | None:
    rule = random.choice(_translations(listed))
    translation = find_statement(rule, "dnat")["dnat"]["addr"]
    address = translation["map"]["data"]["set"][0][1]["concat"][0] if "map" in translation else translation
    first = listed.rules("filter-forward")[0]
    listed.insert(first, match({"payload": {"protocol": listed.family, "field": "daddr"}}, address), {"drop": None})
    return Expectation((service_of_chain(rule["rule"]["chain"]),))


POOL_OPERATORS: tuple[Operator[NftListing], ...] = (
    Operator("endpoint missing", "the range of numbers stays", _edit_random_choice(_drop_one)),
    Operator("endpoint removed", "and the range of numbers shrinks", _edit_random_choice(_drop_last)),
    Operator("random number without an endpoint", "one number has no endpoint", _edit_random_choice(_increase_modulus)),
    Operator("random numbers shifted", "one endpoint is never chosen", _edit_random_choice(_shift_offset)),
    Operator("duplicate endpoint", "another endpoint is never chosen", _edit_random_choice(_choose_one_endpoint_twice)),
    Operator("endpoint of another Service", "one of another Service", _foreign_endpoint),
    Operator("wrong endpoint port", "by one", _edit_target(lambda port: port + 1, 1)),
    Operator("wrong endpoint address", "an address that no endpoint has", _edit_target(_unused_address, 0)),
    Operator("endpoint blocked", "when forwarded to", _endpoint_blocked),
    Operator("hairpin missing", "of an endpoint on the node", _hairpin_missing),
    Operator("other timeout", "of affinity", _timeout),
    Operator("affinity not checked", "recorded clients are not checked", remove_rule("service-*", "@affinity-")),
    Operator("affinity not recorded", "clients are not recorded", remove_rule("endpoint-*", '"update"')),
    Operator("affinity in another set", "that of another endpoint", _other_set),
    Operator(
        "affinity check after the choice",
        "recorded clients are checked after a random endpoint was chosen",
        _affinity_late,
    ),
    Operator("uninterpreted match", "before the rules of a pool", _uninterpreted_rule),
)
