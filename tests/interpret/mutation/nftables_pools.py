"""Ways in which the endpoints of a Service go wrong, and affinity to them, in kube-proxy's table in mode nftables."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from tests.interpret.mutation.listed import Listed, Object, owner, service, step
from tests.interpret.mutation.listing import match
from tests.interpret.mutation.nftables_parts import FRONTENDS, Change, drawn_of, removed
from tests.interpret.mutation.operator import Operator, Touched

_HERE = re.compile(r"\b(10\.244\.1\.|fd00:10:244:1::)")


def _pool_rules(listed: Listed) -> list[Object]:
    """Return the rules that draw among several endpoints."""
    return [*listed.rules("service-*", "numgen"), *listed.rules("local-*", "numgen")]


def _of_pools(edit: Callable[[Object, list[Any], Random], None], least: int = 2) -> Change:
    """Change what a Service draws from."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = [rule for rule in _pool_rules(listed) if len(drawn_of(rule)[1]) >= least]
        if not rules:
            return None
        rule = chance.choice(rules)
        edit(*drawn_of(rule), chance)
        return Touched((owner(rule["rule"]["chain"]),))

    return change


def _drop_one(_: Object, found: list[Any], chance: Random) -> None:
    found.pop(chance.randrange(len(found)))


def _drop_last(drawn: Object, found: list[Any], _: Random) -> None:
    found.pop()
    drawn["mod"] -= 1


def _draw_more(drawn: Object, _: list[Any], __: Random) -> None:
    drawn["mod"] += 1


def _twice_the_same(_: Object, found: list[Any], __: Random) -> None:
    found[0][1] = found[1][1]


def _shifted(drawn: Object, _: list[Any], __: Random) -> None:
    drawn["offset"] = 1


def _foreign_endpoint(listed: Listed, chance: Random) -> Touched | None:
    """Send some packets of a Service to an endpoint of another that is written alike."""
    rules = _pool_rules(listed)
    pairs = [
        (mine, other)
        for mine in rules
        for other in rules
        if owner(mine["rule"]["chain"]) != owner(other["rule"]["chain"])
        and ("vmap" in json.dumps(mine)) is ("vmap" in json.dumps(other))
    ]
    if not pairs:
        return None
    mine, other = chance.choice(pairs)
    drawn_of(mine)[1][0][1] = drawn_of(other)[1][0][1]
    return Touched((owner(mine["rule"]["chain"]),))


def _translations(listed: Listed) -> list[Object]:
    return [
        rule
        for rule in listed.rules("*", '"dnat"')
        if "fib" not in json.dumps(rule) and '"status"' not in json.dumps(rule)
    ]


def _target_edited(edit: Callable[[Any], Any], part: int) -> Change:
    """Change the address (0) or the port (1) of one endpoint, wherever the layout has it."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rule = chance.choice(_translations(listed))
        translation = step(rule, "dnat")["dnat"]
        if "map" in translation["addr"]:
            target = chance.choice(translation["addr"]["map"]["data"]["set"])[1]["concat"]
            target[part] = edit(target[part])
        else:
            name = ("addr", "port")[part]
            translation[name] = edit(translation[name])
        return Touched((owner(rule["rule"]["chain"]),))

    return change


def _nobodys(address: str) -> str:
    return "fd00:10:244:9::9" if ":" in address else "10.244.9.9"


def _hairpin_missing(listed: Listed, chance: Random) -> Touched | None:
    elements = listed.elements("hairpin-connections")
    if not elements:
        return _hairpin_rule_missing(listed, chance)
    element = elements.pop(chance.randrange(len(elements)))
    end = element["concat"][0], element["concat"][3]
    rules = [rule for rule in _translations(listed) if f'"{end[0]}"' in json.dumps(rule)]
    return Touched(tuple({owner(rule["rule"]["chain"]) for rule in rules}))


def _hairpin_rule_missing(listed: Listed, chance: Random) -> Touched | None:
    rules = [
        rule for rule in listed.rules("endpoint-*", "saddr.*mark-for-masquerade") if _HERE.search(json.dumps(rule))
    ]
    if not rules:
        return None
    rule = chance.choice(rules)
    listed.remove(rule)
    return Touched((owner(rule["rule"]["chain"]),))


def _timeout(listed: Listed, chance: Random) -> Touched | None:
    sets = [item["set"] for item in listed.objects if item.get("set", {}).get("name", "").startswith("affinity-")]
    if not sets:
        return None
    found = chance.choice(sets)
    found["timeout"] += 1
    return Touched((owner(found["name"]),))


def _other_set(listed: Listed, chance: Random) -> Touched | None:
    """Remember clients where those of another endpoint are."""
    rules = listed.rules("endpoint-*", '"update"')
    if len(rules) < 2:
        return None
    one, other = chance.sample(rules, 2)
    step(one, "set")["set"]["set"] = step(other, "set")["set"]["set"]
    return Touched((owner(one["rule"]["chain"]),))


def _affinity_late(listed: Listed, chance: Random) -> Touched | None:
    rules = [rule for rule in _pool_rules(listed) if listed.rules(rule["rule"]["chain"], "@affinity-")]
    if not rules:
        return None
    rule = chance.choice(rules)
    listed.move_before(rule, listed.rules(rule["rule"]["chain"], "@affinity-")[0])
    return Touched((owner(rule["rule"]["chain"]),))


def _uninterpreted(listed: Listed, chance: Random) -> Touched | None:
    """Put a rule that nobody can read in front of one Service's pool."""
    pool = chance.choice(_pool_rules(listed))["rule"]["chain"]
    elements = [item for item in listed.elements(FRONTENDS) if owner(pool) == service(item)]
    if not elements:
        return None
    listed.insert(listed.rules(pool)[0], match({"ct": {"key": "helper"}}, "ftp"), {"accept": None})
    return Touched((owner(pool),), line=-1)


def _endpoint_blocked(listed: Listed, chance: Random) -> Touched | None:
    rule = chance.choice(_translations(listed))
    translation = step(rule, "dnat")["dnat"]["addr"]
    address = translation["map"]["data"]["set"][0][1]["concat"][0] if "map" in translation else translation
    first = listed.rules("filter-forward")[0]
    listed.insert(first, match({"payload": {"protocol": listed.family, "field": "daddr"}}, address), {"drop": None})
    return Touched((owner(rule["rule"]["chain"]),))


OF_POOLS: tuple[Operator[Listed], ...] = (
    Operator("endpoint missing", "and as many numbers drawn", _of_pools(_drop_one)),
    Operator("endpoint gone", "and one number less", _of_pools(_drop_last)),
    Operator("too many drawn", "for one number nothing is found", _of_pools(_draw_more)),
    Operator("numbers shifted", "one endpoint is never drawn", _of_pools(_shifted)),
    Operator("endpoint twice", "another one never", _of_pools(_twice_the_same)),
    Operator("foreign endpoint", "one of another Service", _foreign_endpoint),
    Operator("wrong endpoint port", "by one", _target_edited(lambda port: port + 1, 1)),
    Operator("wrong endpoint address", "nobody's", _target_edited(_nobodys, 0)),
    Operator("endpoint blocked", "when forwarded to", _endpoint_blocked),
    Operator("hairpin missing", "of an endpoint on the node", _hairpin_missing),
    Operator("other timeout", "of affinity", _timeout),
    Operator("affinity lost", "nobody looks who is remembered", removed("service-*", "@affinity-")),
    Operator("affinity unset", "nobody is remembered", removed("endpoint-*", '"update"')),
    Operator("affinity in another set", "that of another endpoint", _other_set),
    Operator("affinity late", "looked for after an endpoint was drawn", _affinity_late),
    Operator("match of nobody knows what", "in front of a pool", _uninterpreted),
)
