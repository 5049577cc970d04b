"""Faults of frontends and source ranges in mode nftables."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from knft_compat.nftables.expressions import jump_to, match
from tests.mutation.nft_listing import NftListing, Object, find_statement, key_of, service_of_chain, service_of_element
from tests.mutation.nftables_common import FRONTENDS, NODE_PORTS, Change, random_choice, remove_rule
from tests.mutation.operator import Expectation, Operator

_NO_ENDPOINTS, _NO_ENDPOINT_PORTS = "no-endpoint-services", "no-endpoint-nodeports"


def _element_removed(name: str) -> Change:
    def change(listed: NftListing, random: Random) -> Expectation | None:
        elements = listed.elements(name)
        if not elements:
            return None
        element = elements.pop(random.randrange(len(elements)))
        return Expectation((service_of_element(element),))

    return change


def _key_edited(name: str, edit: Callable[[list[Any]], None]) -> Change:
    """Return an operator that edits an element's key."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        elements = listed.elements(name)
        if not elements:
            return None
        element = random.choice(elements)
        edit(key_of(element))
        return Expectation((service_of_element(element),))

    return change


def _next_port(key: list[Any]) -> None:
    key[-1] += 5


def _other_protocol(key: list[Any]) -> None:
    key[-2] = "dccp"


def _reject_missing(listed: NftListing, random: Random) -> Expectation | None:
    elements = listed.elements(_NO_ENDPOINTS)
    if not elements:
        return None
    element = elements.pop(random.randrange(len(elements)))
    if key_of(element)[0] in listed.elements("cluster-ips") and "drop" not in element[1]:
        return Expectation((service_of_element(element),), "cluster-ips-check rejects other ports of cluster IPs")
    return Expectation((service_of_element(element),))


def _verdict(name: str, verdict: Object) -> Change:
    """Return an operator that replaces the verdict of an element."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        elements = [item for item in listed.elements(name) if item[1] != verdict]
        if not elements:
            return None
        element = random.choice(elements)
        service = service_of_element(element)
        element[1] = verdict
        return Expectation((service,))

    return change


def _to_other_service(listed: NftListing, random: Random) -> Expectation | None:
    elements = listed.elements(FRONTENDS)
    mine = random.choice(elements)
    service = service_of_element(mine)
    others = [item for item in elements if service_of_element(item) != service]
    mine[1] = random.choice(others)[1]
    return Expectation((service,))


def _as_internal(listed: NftListing, random: Random) -> Expectation | None:
    """Use the chain of the cluster IP for an external frontend."""
    chains = set(listed.chains("service-"))
    elements = [
        item
        for item in (*listed.elements(FRONTENDS), *listed.elements(NODE_PORTS))
        if "external-" in json.dumps(item[1]) and item[1]["goto"]["target"].replace("external-", "service-") in chains
    ]
    if not elements:
        return None
    element = random.choice(elements)
    element[1] = jump_to("goto", element[1]["goto"]["target"].replace("external-", "service-"))
    return Expectation((service_of_element(element),))


def _stale_element(listed: NftListing, random: Random) -> Expectation | None:
    """Add a frontend of a removed Service."""
    elements = listed.elements(FRONTENDS)
    model = random.choice(elements)
    address = "10.96.0.250" if listed.family == "ip" else "fd00:10:96::fa"
    key = {"concat": [address, *key_of(model)[1:]]}
    elements.append([{"elem": {"val": key, "comment": "shop/bygone:http"}}, model[1]])
    return Expectation(("shop/bygone:http",))


def _policy_swapped(listed: NftListing, random: Random) -> Expectation | None:
    """Use all endpoints for external packets, instead of those on the node."""
    rules = listed.rules("external-*", '"goto": {"target": "local-')
    if not rules:
        return None
    rule = random.choice(rules)
    local = find_statement(rule, "goto")["goto"]["target"]
    cluster = local.replace("local-", "service-")
    rule["rule"]["expr"] = [jump_to("goto", cluster)]
    mine = service_of_chain(rule["rule"]["chain"])
    if _ends(listed, local) == _ends(listed, cluster):
        return Expectation((mine,), "all endpoints are on the node, and neither chain marks external packets")
    return Expectation((mine,))


def _ends(listed: NftListing, chain: str) -> list[str]:
    return sorted(json.dumps(item[1]) for rule in listed.rules(chain, "numgen") for item in random_choice(rule)[1])


def _before(*verdict: Object) -> Change:
    """Insert a rule for one frontend before the lookup of frontends."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        element = random.choice(listed.elements(FRONTENDS))
        address, protocol, port = key_of(element)
        first = listed.rules("services")[0]
        listed.insert(
            first,
            match({"payload": {"protocol": listed.family, "field": "daddr"}}, address),
            match({"payload": {"protocol": protocol, "field": "dport"}}, port),
            *verdict,
        )
        return Expectation((service_of_element(element),))

    return change


def _ranges(edit: Callable[[list[Any]], None]) -> Change:
    def change(listed: NftListing, random: Random) -> Expectation | None:
        rules = listed.rules("firewall-*", "saddr")
        if not rules:
            return None
        rule = random.choice(rules)
        edit(find_statement(rule, "match")["match"]["right"]["set"])
        return Expectation((service_of_chain(rule["rule"]["chain"]),))

    return change


def _narrow(ranges: list[Any]) -> None:
    ranges[0]["prefix"]["len"] += 1


def _add_range(ranges: list[Any]) -> None:
    address = "2001:db8:77::" if ":" in ranges[0]["prefix"]["addr"] else "203.0.113.64"
    ranges.append({"prefix": {"addr": address, "len": 96 if ":" in address else 26}})


def _pop_range(ranges: list[Any]) -> None:
    ranges.pop()


def _cluster_ip_missing(listed: NftListing, random: Random) -> Expectation | None:
    elements = listed.elements("cluster-ips")
    address = elements.pop(random.randrange(len(elements)))
    found = [item for name in (FRONTENDS, _NO_ENDPOINTS) for item in listed.elements(name)]
    return Expectation(tuple({service_of_element(item) for item in found if key_of(item)[0] == address}))


_GOTO_POOL = r'"expr": \[\{"goto": \{"target": "(service|local)-'
_MASQUERADED = '"comment": "masquerade"'
FRONTEND_OPERATORS: tuple[Operator[NftListing], ...] = (
    Operator("frontend missing", "of an address", _element_removed(FRONTENDS)),
    Operator("NodePort missing", "of the node", _element_removed(NODE_PORTS)),
    Operator("wrong frontend port", "by five", _key_edited(FRONTENDS, _next_port)),
    Operator("wrong NodePort", "by five", _key_edited(NODE_PORTS, _next_port)),
    Operator("wrong protocol", "dccp", _key_edited(FRONTENDS, _other_protocol)),
    Operator("frontend dropped", "where it led to a chain", _verdict(FRONTENDS, {"drop": None})),
    Operator("frontend leads to another Service", "leads to another Service", _to_other_service),
    Operator("external as internal", "an external address uses the chain of the cluster IP", _as_internal),
    Operator("stale element", "the frontend of a removed Service", _stale_element),
    Operator("policy swapped", "Cluster for Local", _policy_swapped),
    Operator("masquerade missing", "for external clients", remove_rule("external-*", _MASQUERADED)),
    Operator("masquerade for pods too", "no short-circuit", remove_rule("external-*", "short-circuit pod")),
    Operator("pool unreached", "from outside", remove_rule("external-*", _GOTO_POOL)),
    Operator("extra accept", "before the rule of a frontend", _before({"accept": None})),
    Operator("extra return", "before the rule of a frontend", _before({"return": None})),
    Operator("extra drop", "before the rule of a frontend", _before({"drop": None})),
    Operator("reject missing", "without endpoints", _reject_missing),
    Operator("reject of a NodePort missing", "without endpoints", _element_removed(_NO_ENDPOINT_PORTS)),
    Operator("reject becomes drop", "dropped instead of rejected", _verdict(_NO_ENDPOINTS, {"drop": None})),
    Operator(
        "drop becomes reject", "rejected instead of dropped", _verdict(_NO_ENDPOINTS, jump_to("goto", "reject-chain"))
    ),
    Operator("firewall rule missing", "source ranges are not checked", _element_removed("firewall-ips")),
    Operator("firewall empty", "no drop", remove_rule("firewall-*", "drop")),
    Operator("source range narrower", "half", _ranges(_narrow)),
    Operator("source range missing", "one of two", _ranges(_pop_range)),
    Operator("source range added", "of others", _ranges(_add_range)),
    Operator("cluster IP missing", "from the set cluster-ips", _cluster_ip_missing),
)
