"""Ways in which the frontends of a Service go wrong, and who may reach them, in kube-proxy's table in mode nftables."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.interpret.mutation.listed import Listed, Object, owner, service, step
from tests.interpret.mutation.listing import leading, match
from tests.interpret.mutation.nftables_parts import FRONTENDS, NODE_PORTS, Change, drawn_of, removed
from tests.interpret.mutation.operator import Operator, Touched

_REFUSED, _REFUSED_PORTS = "no-endpoint-services", "no-endpoint-nodeports"


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
    elements = listed.elements(FRONTENDS)
    mine = chance.choice(elements)
    others = [item for item in elements if service(item) != service(mine)]
    mine[1] = chance.choice(others)[1]
    return Touched((service(mine),))


def _as_internal(listed: Listed, chance: Random) -> Touched | None:
    """Lead an external frontend where the cluster IP is led."""
    chains = set(listed.chains("service-"))
    elements = [
        item
        for item in (*listed.elements(FRONTENDS), *listed.elements(NODE_PORTS))
        if "external-" in json.dumps(item[1]) and item[1]["goto"]["target"].replace("external-", "service-") in chains
    ]
    if not elements:
        return None
    element = chance.choice(elements)
    element[1] = leading("goto", element[1]["goto"]["target"].replace("external-", "service-"))
    return Touched((service(element),))


def _stale_element(listed: Listed, chance: Random) -> Touched | None:
    """Leave a frontend of a Service that is gone."""
    elements = listed.elements(FRONTENDS)
    model, target = chance.choice(elements)
    address = "10.96.0.250" if listed.family == "ip" else "fd00:10:96::fa"
    key = {"concat": [address, *model["elem"]["val"]["concat"][1:]]}
    elements.append([{"elem": {"val": key, "comment": "shop/bygone:http"}}, target])
    return Touched(("shop/bygone:http",))


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
    return sorted(json.dumps(item[1]) for rule in listed.rules(chain, "numgen") for item in drawn_of(rule)[1])


def _before(*verdict: Object) -> Change:
    """Put a rule in front of the look-up of frontends, for one of them."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        element = chance.choice(listed.elements(FRONTENDS))
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
    found = [item for name in (FRONTENDS, _REFUSED) for item in listed.elements(name)]
    return Touched(tuple({service(item) for item in found if item[0]["elem"]["val"]["concat"][0] == address}))


_GOTO_POOL = r'"expr": \[\{"goto": \{"target": "(service|local)-'
_MASQUERADED = '"comment": "masquerade"'
OF_FRONTENDS: tuple[Operator[Listed], ...] = (
    Operator("frontend missing", "of an address", _element_removed(FRONTENDS)),
    Operator("NodePort missing", "of the node", _element_removed(NODE_PORTS)),
    Operator("wrong frontend port", "by five", _key_edited(FRONTENDS, _next_port)),
    Operator("wrong NodePort", "by five", _key_edited(NODE_PORTS, _next_port)),
    Operator("wrong protocol", "dccp", _key_edited(FRONTENDS, _other_protocol)),
    Operator("frontend dropped", "where it led to a chain", _verdict(FRONTENDS, {"drop": None})),
    Operator("frontend of another", "leads to another Service", _to_other_service),
    Operator("external as internal", "an external address leads where the cluster IP does", _as_internal),
    Operator("stale element", "the frontend of a Service that is gone", _stale_element),
    Operator("policy swapped", "Cluster for Local", _policy_swapped),
    Operator("masquerade missing", "for what comes from outside", removed("external-*", _MASQUERADED)),
    Operator("masquerade for pods too", "no short-circuit", removed("external-*", "short-circuit pod")),
    Operator("pool unreached", "from outside", removed("external-*", _GOTO_POOL)),
    Operator("extra accept", "in front of a frontend", _before({"accept": None})),
    Operator("extra return", "in front of a frontend", _before({"return": None})),
    Operator("extra drop", "in front of a frontend", _before({"drop": None})),
    Operator("refusal missing", "without endpoints", _refusal_missing),
    Operator("refusal of a NodePort missing", "without endpoints", _element_removed(_REFUSED_PORTS)),
    Operator("refusal silent", "dropped, not refused", _verdict(_REFUSED, {"drop": None})),
    Operator("drop said aloud", "refused, not dropped", _verdict(_REFUSED, leading("goto", "reject-chain"))),
    Operator("firewall hole", "no look at source ranges", _element_removed("firewall-ips")),
    Operator("firewall empty", "no drop", removed("firewall-*", "drop")),
    Operator("source range narrower", "half", _ranges(_narrow)),
    Operator("source range missing", "one of two", _ranges(_pop_range)),
    Operator("source range added", "of others", _ranges(_add_range)),
    Operator("cluster IP missing", "in the set of all", _cluster_ip_missing),
)
