"""Ways in which kube-proxy's table in mode nftables goes wrong, as nft would list it."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.interpret.mutation.listed import Listed, Object, owner, service, step
from tests.interpret.mutation.listing import leading, match
from tests.interpret.mutation.operator import Operator, Touched

Change = Callable[[Listed, Random], Touched | None]
_FRONTENDS, _NODE_PORTS = "service-ips", "service-nodeports"
_REFUSED, _REFUSED_PORTS = "no-endpoint-services", "no-endpoint-nodeports"
_HERE = re.compile(r"\b(10\.244\.1\.|fd00:10:244:1::)")


def _element_removed(name: str) -> Change:
    def change(listed: Listed, chance: Random) -> Touched | None:
        elements = listed.elements(name)
        if not elements:
            return None
        element = elements.pop(chance.randrange(len(elements)))
        return Touched((service(element),))

    return change


def _key_edited(name: str, edit: Callable[[list[Any]], None]) -> Change:
    """Change a part of an element's key."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        elements = listed.elements(name)
        if not elements:
            return None
        element = chance.choice(elements)
        edit(element[0]["elem"]["val"]["concat"])
        return Touched((service(element),))

    return change


def _next_port(key: list[Any]) -> None:
    key[-1] += 5


def _other_protocol(key: list[Any]) -> None:
    key[-2] = "dccp"


def _refusal_missing(listed: Listed, chance: Random) -> Touched | None:
    elements = listed.elements(_REFUSED)
    if not elements:
        return None
    element = elements.pop(chance.randrange(len(elements)))
    if element[0]["elem"]["val"]["concat"][0] in listed.elements("cluster-ips") and "drop" not in element[1]:
        return Touched((service(element),), "cluster-ips-check refuses what a cluster IP does not serve")
    return Touched((service(element),))


def _verdict(name: str, verdict: Object) -> Change:
    """Have an element lead to something else."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        elements = [item for item in listed.elements(name) if item[1] != verdict]
        if not elements:
            return None
        element = chance.choice(elements)
        element[1] = verdict
        return Touched((service(element),))

    return change


def _to_other_service(listed: Listed, chance: Random) -> Touched | None:
    elements = listed.elements(_FRONTENDS)
    mine = chance.choice(elements)
    others = [item for item in elements if service(item) != service(mine)]
    mine[1] = chance.choice(others)[1]
    return Touched((service(mine),))


def _as_internal(listed: Listed, chance: Random) -> Touched | None:
    """Lead an external frontend where the cluster IP is led."""
    chains = set(listed.chains("service-"))
    elements = [
        item
        for item in (*listed.elements(_FRONTENDS), *listed.elements(_NODE_PORTS))
        if "external-" in json.dumps(item[1]) and item[1]["goto"]["target"].replace("external-", "service-") in chains
    ]
    if not elements:
        return None
    element = chance.choice(elements)
    element[1] = leading("goto", element[1]["goto"]["target"].replace("external-", "service-"))
    return Touched((service(element),))


def _stale_element(listed: Listed, chance: Random) -> Touched | None:
    """Leave a frontend of a Service that is gone."""
    elements = listed.elements(_FRONTENDS)
    model, target = chance.choice(elements)
    address = "10.96.0.250" if listed.family == "ip" else "fd00:10:96::fa"
    key = {"concat": [address, *model["elem"]["val"]["concat"][1:]]}
    elements.append([{"elem": {"val": key, "comment": "shop/bygone:http"}}, target])
    return Touched(("shop/bygone:http",))


def _pool_rules(listed: Listed) -> list[Object]:
    """Return the rules that draw among several endpoints."""
    return [*listed.rules("service-*", "numgen"), *listed.rules("local-*", "numgen")]


def _drawn(rule: Object) -> tuple[Object, list[Any]]:
    """Return what is drawn in a rule, and what for."""
    for item in rule["rule"]["expr"]:
        found = item.get("vmap") or item.get("dnat", {}).get("addr", {}).get("map")
        if found:
            return found["key"]["numgen"], found["data"]["set"]
    raise AssertionError(rule)


def _of_pools(edit: Callable[[Object, list[Any], Random], None], least: int = 2) -> Change:
    """Change what a Service draws from."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = [rule for rule in _pool_rules(listed) if len(_drawn(rule)[1]) >= least]
        if not rules:
            return None
        rule = chance.choice(rules)
        edit(*_drawn(rule), chance)
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
    _drawn(mine)[1][0][1] = _drawn(other)[1][0][1]
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


def _removed(chain: str, has: str = "") -> Change:
    """Take away a rule of a Service's chain."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = listed.rules(chain, has)
        if not rules:
            return None
        rule = chance.choice(rules)
        listed.remove(rule)
        return Touched((owner(rule["rule"]["chain"]),))

    return change


def _removed_of_all(chain: str, has: str = "") -> Change:
    """Take away a rule that is there for all Services."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = listed.rules(chain, has)
        if not rules:
            return None
        listed.remove(chance.choice(rules))
        return Touched()

    return change


def _policy_swapped(listed: Listed, chance: Random) -> Touched | None:
    """Send packets from outside to all endpoints where only those of the node are meant."""
    rules = listed.rules("external-*", '"goto": {"target": "local-')
    if not rules:
        return None
    rule = chance.choice(rules)
    local = step(rule, "goto")["goto"]["target"]
    cluster = local.replace("local-", "service-")
    rule["rule"]["expr"] = [leading("goto", cluster)]
    mine = owner(rule["rule"]["chain"])
    if _ends(listed, local) == _ends(listed, cluster):
        return Touched((mine,), "all endpoints are on the node, and neither chain marks what comes from outside")
    return Touched((mine,))


def _ends(listed: Listed, chain: str) -> list[str]:
    return sorted(json.dumps(item[1]) for rule in listed.rules(chain, "numgen") for item in _drawn(rule)[1])


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


def _before(*verdict: Object) -> Change:
    """Put a rule in front of the look-up of frontends, for one of them."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        element = chance.choice(listed.elements(_FRONTENDS))
        address, protocol, port = element[0]["elem"]["val"]["concat"]
        first = listed.rules("services")[0]
        listed.insert(
            first,
            match({"payload": {"protocol": listed.family, "field": "daddr"}}, address),
            match({"payload": {"protocol": protocol, "field": "dport"}}, port),
            *verdict,
        )
        return Touched((service(element),))

    return change


def _uninterpreted(listed: Listed, chance: Random) -> Touched | None:
    """Put a rule that nobody can read in front of one Service's pool."""
    pool = chance.choice(_pool_rules(listed))["rule"]["chain"]
    elements = [item for item in listed.elements(_FRONTENDS) if owner(pool) == service(item)]
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


def _ranges(edit: Callable[[list[Any]], None]) -> Change:
    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = listed.rules("firewall-*", "saddr")
        if not rules:
            return None
        rule = chance.choice(rules)
        edit(step(rule, "match")["match"]["right"]["set"])
        return Touched((owner(rule["rule"]["chain"]),))

    return change


def _narrow(ranges: list[Any]) -> None:
    ranges[0]["prefix"]["len"] += 1


def _add_range(ranges: list[Any]) -> None:
    address = "2001:db8:77::" if ":" in ranges[0]["prefix"]["addr"] else "203.0.113.64"
    ranges.append({"prefix": {"addr": address, "len": 96 if ":" in address else 26}})


def _pop_range(ranges: list[Any]) -> None:
    ranges.pop()


def _cluster_ip_missing(listed: Listed, chance: Random) -> Touched | None:
    elements = listed.elements("cluster-ips")
    address = elements.pop(chance.randrange(len(elements)))
    found = [item for name in (_FRONTENDS, _REFUSED) for item in listed.elements(name)]
    return Touched(tuple({service(item) for item in found if item[0]["elem"]["val"]["concat"][0] == address}))


def _node_port_ip(edit: Callable[[list[Any], str], None]) -> Change:
    def change(listed: Listed, _: Random) -> Touched | None:
        edit(listed.elements("nodeport-ips"), "203.0.113.99" if listed.family == "ip" else "2001:db8:cb::9:9")
        return Touched()

    return change


def _clear(elements: list[Any], _: str) -> None:
    elements.clear()


def _with_other(elements: list[Any], other: str) -> None:
    elements.append(other)


def _base(name: str, field: str, value: Any) -> Change:
    """Change a base chain."""

    def change(listed: Listed, _: Random) -> Touched | None:
        listed.base(name)[field] = value
        return Touched()

    return change


def _replaced(chain: str, old: str, new: str) -> Change:
    """Change a rule that is there for all Services, in its text."""

    def change(listed: Listed, _: Random) -> Touched | None:
        rules = listed.rules(chain, re.escape(old))
        if not rules:
            return None
        rules[0]["rule"] = json.loads(json.dumps(rules[0]["rule"]).replace(old, new))
        return Touched()

    return change


def _return_first(listed: Listed, _: Random) -> Touched | None:
    listed.insert(listed.rules("services")[0], {"return": None})
    return Touched()


_GOTO_POOL = r'"expr": \[\{"goto": \{"target": "(service|local)-'
_MASQUERADED = '"comment": "masquerade"'

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
    Operator("affinity lost", "nobody looks who is remembered", _removed("service-*", "@affinity-")),
    Operator("affinity unset", "nobody is remembered", _removed("endpoint-*", '"update"')),
    Operator("affinity in another set", "that of another endpoint", _other_set),
    Operator("affinity late", "looked for after an endpoint was drawn", _affinity_late),
    Operator("match of nobody knows what", "in front of a pool", _uninterpreted),
)

OF_FRONTENDS: tuple[Operator[Listed], ...] = (
    Operator("frontend missing", "of an address", _element_removed(_FRONTENDS)),
    Operator("NodePort missing", "of the node", _element_removed(_NODE_PORTS)),
    Operator("wrong frontend port", "by five", _key_edited(_FRONTENDS, _next_port)),
    Operator("wrong NodePort", "by five", _key_edited(_NODE_PORTS, _next_port)),
    Operator("wrong protocol", "dccp", _key_edited(_FRONTENDS, _other_protocol)),
    Operator("frontend dropped", "where it led to a chain", _verdict(_FRONTENDS, {"drop": None})),
    Operator("frontend of another", "leads to another Service", _to_other_service),
    Operator("external as internal", "an external address leads where the cluster IP does", _as_internal),
    Operator("stale element", "the frontend of a Service that is gone", _stale_element),
    Operator("policy swapped", "Cluster for Local", _policy_swapped),
    Operator("masquerade missing", "for what comes from outside", _removed("external-*", _MASQUERADED)),
    Operator("masquerade for pods too", "no short-circuit", _removed("external-*", "short-circuit pod")),
    Operator("pool unreached", "from outside", _removed("external-*", _GOTO_POOL)),
    Operator("extra accept", "in front of a frontend", _before({"accept": None})),
    Operator("extra return", "in front of a frontend", _before({"return": None})),
    Operator("extra drop", "in front of a frontend", _before({"drop": None})),
    Operator("refusal missing", "without endpoints", _refusal_missing),
    Operator("refusal of a NodePort missing", "without endpoints", _element_removed(_REFUSED_PORTS)),
    Operator("refusal silent", "dropped, not refused", _verdict(_REFUSED, {"drop": None})),
    Operator("drop said aloud", "refused, not dropped", _verdict(_REFUSED, leading("goto", "reject-chain"))),
    Operator("firewall hole", "no look at source ranges", _element_removed("firewall-ips")),
    Operator("firewall empty", "no drop", _removed("firewall-*", "drop")),
    Operator("source range narrower", "half", _ranges(_narrow)),
    Operator("source range missing", "one of two", _ranges(_pop_range)),
    Operator("source range added", "of others", _ranges(_add_range)),
    Operator("cluster IP missing", "in the set of all", _cluster_ip_missing),
)

OF_ALL: tuple[Operator[Listed], ...] = (
    Operator("no NodePort addresses", "at all", _node_port_ip(_clear)),
    Operator("one NodePort address more", "of nobody", _node_port_ip(_with_other)),
    Operator("no services from outside", "jump", _removed_of_all("nat-prerouting")),
    Operator("no services from the node", "jump", _removed_of_all("nat-output")),
    Operator("no masquerading", "jump", _removed_of_all("nat-postrouting")),
    Operator("no frontends", "look-up", _removed_of_all("services", "@service-ips")),
    Operator("no cluster IPs' check", "reject", _removed_of_all("cluster-ips-check", "invalid ports")),
    Operator("return first", "of services", _return_first),
    Operator("wrong mark", "looked for", _replaced("masquerading", '16384]}, "right"', '32768]}, "right"')),
    Operator("input drops", "by policy", _base("filter-input", "policy", "drop")),
    Operator("forwarding drops", "by policy", _base("filter-forward", "policy", "drop")),
    Operator("firewall after translation", "another priority", _base("filter-prerouting-pre-dnat", "prio", -90)),
)

OPERATORS: Sequence[Operator[Listed]] = (*OF_POOLS, *OF_FRONTENDS, *OF_ALL)
