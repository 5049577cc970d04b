"""Rewrites in mode nftables: the same rules written differently, or with rules of other programs."""

import json
import re
from ipaddress import ip_network
from random import Random
from typing import Any

from knft_compat.nftables.expressions import jump_to, match
from tests.mutation.nft_listing import NftListing, find_statement, key_of
from tests.mutation.operator import Rewrite


def _renamed(listed: NftListing, random: Random) -> bool:
    """Rename the chains of Services."""
    names: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        letters = "".join(random.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=8))
        return names.setdefault(found[0], f"{found[1]}-{letters}-")

    text = json.dumps(listed.objects)
    listed.objects = json.loads(re.sub(r"(service|local|external|firewall)-[A-Z2-7]{8}-", other, text))
    return True


def _reordered(listed: NftListing, _: Random) -> bool:
    """Reverse the order of endpoints."""
    rules = listed.rules("*", "numgen")
    for rule in rules:
        for item in rule["rule"]["expr"]:
            found = item.get("vmap") or item.get("dnat", {}).get("addr", {}).get("map")
            if found:
                pairs = found["data"]["set"]
                values = [value for _, value in pairs][::-1]
                for pair, value in zip(pairs, values, strict=True):
                    pair[1] = value
    return bool(rules)


def _elements_reordered(listed: NftListing, random: Random) -> bool:
    for item in listed.objects:
        for kind in ("set", "map"):
            random.shuffle(item.get(kind, {}).get("elem", []))
    return True


def _split(listed: NftListing, _: Random) -> bool:
    """Move the lookup of frontends to a chain of its own."""
    rule = listed.rules("services", "@service-ips")[0]
    listed.declare("frontends", {"expr": rule["rule"]["expr"]})
    rule["rule"]["expr"] = [jump_to("jump", "frontends")]
    return True


def _inlined(listed: NftListing, _: Random) -> bool:
    """Move the rules for masquerading to the base chain; not possible if one returns."""
    rule = listed.rules("nat-postrouting")[0]
    body = listed.rules("masquerading")
    for item in body:
        listed.insert(rule, *item["rule"]["expr"])
    listed.remove(rule, *body)
    return "return" not in json.dumps(body)


def _counted(listed: NftListing, random: Random) -> bool:
    for rule in listed.rules("*"):
        rule["rule"]["expr"].insert(-1, {"counter": {"packets": random.randrange(99), "bytes": random.randrange(9999)}})
    return True


def _commented(listed: NftListing, _: Random) -> bool:
    for number, rule in enumerate(listed.rules("*")):
        rule["rule"]["comment"] = f"rule {number}"
        rule["rule"]["handle"] = 5000 + number
    return True


def _unreachable(listed: NftListing, _: Random) -> bool:
    """Add rules after those that end a chain."""
    for rule in listed.rules("reject-chain"):
        listed.insert(rule, {"reject": None})
    for name in listed.chains("external-"):
        last = listed.rules(name, '"goto"')[-1]
        if "match" not in json.dumps(last):
            listed.insert(last, *last["rule"]["expr"])
            last["rule"]["expr"] = [{"drop": None}]
    return True


def _jumped_twice(listed: NftListing, _: Random) -> bool:
    for name in ("nat-prerouting", "nat-output"):
        rule = listed.rules(name)[0]
        listed.insert(rule, *rule["rule"]["expr"])
    return True


def _foreign_table(listed: NftListing, _: Random) -> bool:
    """Add a table like that of firewalld."""
    listed.objects += [
        {"table": {"family": "inet", "name": "firewalld"}},
        {
            "chain": {
                "family": "inet",
                "table": "firewalld",
                "name": "filter_FORWARD",
                "type": "filter",
                "hook": "forward",
                "prio": 10,
                "policy": "accept",
            }
        },
        {"chain": {"family": "inet", "table": "firewalld", "name": "filter_FWD_public"}},
        {
            "rule": {
                "family": "inet",
                "table": "firewalld",
                "chain": "filter_FORWARD",
                "handle": 1,
                "expr": [
                    match({"ct": {"key": "state"}}, {"set": ["established", "related"]}),
                    {"accept": None},
                ],
            }
        },
        {
            "rule": {
                "family": "inet",
                "table": "firewalld",
                "chain": "filter_FORWARD",
                "handle": 2,
                "expr": [jump_to("jump", "filter_FWD_public")],
            }
        },
        {"table": {"family": "bridge", "name": "other"}},
    ]
    return True


def _marks_otherwise(listed: NftListing, _: Random) -> bool:
    """Set the mark with & and ^, as the kernel does."""
    rules = listed.rules("*", '"\\|"')
    for rule in rules:
        mangled = find_statement(rule, "mangle")["mangle"]
        mangled["value"] = {"^": [{"&": [{"meta": {"key": "mark"}}, 0xFFFFBFFF]}, 0x4000]}
    return bool(rules)


def _sets_anonymous(listed: NftListing, _: Random) -> bool:
    """Write the NodePort addresses as anonymous sets."""
    found = listed.elements("nodeport-ips")
    rules = listed.rules("*", "@nodeport-ips")
    for rule in rules:
        find_statement(rule, "match")["match"]["right"] = {"set": list(found)}
    return bool(found)


def _networks_as_ranges(listed: NftListing, _: Random) -> bool:
    """Write networks as ranges."""

    def other(item: Any) -> Any:
        if isinstance(item, dict) and "prefix" in item:
            network = ip_network(f"{item['prefix']['addr']}/{item['prefix']['len']}")
            return {"range": [str(network[0]), str(network[-1])]}
        if isinstance(item, dict):
            return {key: other(value) for key, value in item.items()}
        return [other(value) for value in item] if isinstance(item, list) else item

    before = json.dumps(listed.objects)
    listed.objects = other(listed.objects)
    return json.dumps(listed.objects) != before


def _map_as_rules(listed: NftListing, _: Random) -> bool:
    """Write the map of NodePorts as one rule for each element."""
    elements = listed.elements("service-nodeports")
    rule = listed.rules("services", "@service-nodeports")[0]
    address_match = find_statement(rule, "match")
    for element in elements:
        protocol, port = key_of(element)
        port_match = match({"payload": {"protocol": protocol, "field": "dport"}}, port)
        listed.insert(rule, address_match, port_match, element[1])
    listed.remove(rule)
    return bool(elements)


def _protocols_as_numbers(listed: NftListing, _: Random) -> bool:
    numbers = {'"tcp"': "6", '"udp"': "17", '"sctp"': "132"}
    for item in listed.objects:
        for kind in ("set", "map"):
            if "elem" in item.get(kind, {}):
                text = json.dumps(item[kind]["elem"])
                for name, number in numbers.items():
                    text = text.replace(name, number)
                item[kind]["elem"] = json.loads(text)
    return True


def _tests_swapped(listed: NftListing, _: Random) -> bool:
    """Swap the first two matches of a rule."""
    rules = [rule for rule in listed.rules("*") if [*map(list, rule["rule"]["expr"])][:2] == [["match"], ["match"]]]
    for rule in rules:
        steps = rule["rule"]["expr"]
        steps[0], steps[1] = steps[1], steps[0]
    return bool(rules)


def _pool_behind_a_chain(listed: NftListing, _: Random) -> bool:
    """Move every endpoint to a chain of its own."""
    rules = [rule for rule in listed.rules("*", "numgen") if "dnat" in json.dumps(rule)]
    for rule in rules:
        protocol, translation = find_statement(rule, "match"), find_statement(rule, "dnat")["dnat"]
        pairs = []
        for number, target in translation["addr"]["map"]["data"]["set"]:
            name = f"endpoint-{number}-{rule['rule']['chain']}"
            address, port = target["concat"]
            listed.declare(name, {"expr": [{"dnat": {"family": listed.family, "addr": address, "port": port}}]})
            pairs.append([number, jump_to("goto", name)])
        key = translation["addr"]["map"]["key"]
        rule["rule"]["expr"] = [protocol, {"vmap": {"key": key, "data": {"set": pairs}}}]
    return bool(rules)


REWRITES: tuple[Rewrite[NftListing], ...] = (
    Rewrite("chains renamed", "consistently", _renamed),
    Rewrite("endpoints reordered", "from the other end", _reordered),
    Rewrite("elements reordered", "in all sets and maps", _elements_reordered),
    Rewrite("rule split", "into a jump to a chain of its own", _split),
    Rewrite("chain inlined", "into its base chain", _inlined),
    Rewrite("counters", "in every rule", _counted),
    Rewrite("comments and handles", "others", _commented),
    Rewrite("unreachable rules", "after those that end a chain", _unreachable),
    Rewrite("duplicate jump", "from both base chains", _jumped_twice),
    Rewrite("firewalld's table", "in addition", _foreign_table),
    Rewrite("marks by and and xor", "not by or", _marks_otherwise),
    Rewrite("sets written out", "in the rules", _sets_anonymous),
    Rewrite("networks as ranges", "from the first to the last", _networks_as_ranges),
    Rewrite("map written as rules", "one for each element", _map_as_rules),
    Rewrite("protocols as numbers", "in all elements", _protocols_as_numbers),
    Rewrite("tests swapped", "the second first", _tests_swapped),
    Rewrite("endpoints behind chains", "one for each", _pool_behind_a_chain),
)
