"""Ways to write the same table otherwise in mode nftables, or to have others' beside it."""

import json
import re
from ipaddress import ip_network
from random import Random
from typing import Any

from tests.interpret.mutation.listed import Listed, step
from tests.interpret.mutation.listing import leading, match
from tests.interpret.mutation.operator import Rewrite


def _renamed(listed: Listed, chance: Random) -> bool:
    """Give the chains of Services other hashes in their names."""
    names: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        letters = "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=8))
        return names.setdefault(found[0], f"{found[1]}-{letters}-")

    text = json.dumps(listed.objects)
    listed.objects = json.loads(re.sub(r"(service|local|external|firewall)-[A-Z2-7]{8}-", other, text))
    return True


def _reordered(listed: Listed, _: Random) -> bool:
    """Number endpoints from the other end."""
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


def _elements_reordered(listed: Listed, chance: Random) -> bool:
    for item in listed.objects:
        for kind in ("set", "map"):
            chance.shuffle(item.get(kind, {}).get("elem", []))
    return True


def _split(listed: Listed, _: Random) -> bool:
    """Have the look-up of frontends in a chain of its own."""
    rule = listed.rules("services", "@service-ips")[0]
    listed.declare("frontends", {"expr": rule["rule"]["expr"]})
    rule["rule"]["expr"] = [leading("jump", "frontends")]
    return True


def _inlined(listed: Listed, _: Random) -> bool:
    """Refuse in the map, where it led to a chain that refuses; only a rule can, so drop stays and this is one."""
    rule = listed.rules("nat-postrouting")[0]
    body = listed.rules("masquerading")
    for item in body:
        listed.insert(rule, *item["rule"]["expr"])
    listed.remove(rule, *body)
    return "return" not in json.dumps(body)


def _counted(listed: Listed, chance: Random) -> bool:
    for rule in listed.rules("*"):
        rule["rule"]["expr"].insert(-1, {"counter": {"packets": chance.randrange(99), "bytes": chance.randrange(9999)}})
    return True


def _commented(listed: Listed, _: Random) -> bool:
    for number, rule in enumerate(listed.rules("*")):
        rule["rule"]["comment"] = f"rule {number}"
        rule["rule"]["handle"] = 5000 + number
    return True


def _unreachable(listed: Listed, _: Random) -> bool:
    """Have rules after those that end a chain."""
    for rule in listed.rules("reject-chain"):
        listed.insert(rule, {"reject": None})
    for name in listed.chains("external-"):
        last = listed.rules(name, '"goto"')[-1]
        if "match" not in json.dumps(last):
            listed.insert(last, *last["rule"]["expr"])
            last["rule"]["expr"] = [{"drop": None}]
    return True


def _jumped_twice(listed: Listed, _: Random) -> bool:
    for name in ("nat-prerouting", "nat-output"):
        rule = listed.rules(name)[0]
        listed.insert(rule, *rule["rule"]["expr"])
    return True


def _foreign_table(listed: Listed, _: Random) -> bool:
    """Have a table of firewalld's kind beside, which accepts."""
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
                "expr": [leading("jump", "filter_FWD_public")],
            }
        },
        {"table": {"family": "bridge", "name": "somebodys"}},
    ]
    return True


def _marks_otherwise(listed: Listed, _: Random) -> bool:
    """Mark by and and xor, as the kernel does anyhow."""
    rules = listed.rules("*", '"\\|"')
    for rule in rules:
        mangled = step(rule, "mangle")["mangle"]
        mangled["value"] = {"^": [{"&": [{"meta": {"key": "mark"}}, 0xFFFFBFFF]}, 0x4000]}
    return bool(rules)


def _sets_anonymous(listed: Listed, _: Random) -> bool:
    """Write the addresses that accept NodePorts into the rules."""
    found = listed.elements("nodeport-ips")
    rules = listed.rules("*", "@nodeport-ips")
    for rule in rules:
        step(rule, "match")["match"]["right"] = {"set": list(found)}
    return bool(found)


def _networks_as_ranges(listed: Listed, _: Random) -> bool:
    """Write networks by their first and last addresses."""

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


def _map_as_rules(listed: Listed, _: Random) -> bool:
    """Write the map of NodePorts as a rule for each."""
    elements = listed.elements("service-nodeports")
    rule = listed.rules("services", "@service-nodeports")[0]
    question = step(rule, "match")
    for element, verdict in elements:
        protocol, port = element["elem"]["val"]["concat"]
        dialled = match({"payload": {"protocol": protocol, "field": "dport"}}, port)
        listed.insert(rule, question, dialled, verdict)
    listed.remove(rule)
    return bool(elements)


def _protocols_as_numbers(listed: Listed, _: Random) -> bool:
    numbers = {'"tcp"': "6", '"udp"': "17", '"sctp"': "132"}
    for item in listed.objects:
        for kind in ("set", "map"):
            if "elem" in item.get(kind, {}):
                text = json.dumps(item[kind]["elem"])
                for name, number in numbers.items():
                    text = text.replace(name, number)
                item[kind]["elem"] = json.loads(text)
    return True


def _tests_swapped(listed: Listed, _: Random) -> bool:
    """Look at the source before the destination."""
    rules = [rule for rule in listed.rules("*") if [*map(list, rule["rule"]["expr"])][:2] == [["match"], ["match"]]]
    for rule in rules:
        steps = rule["rule"]["expr"]
        steps[0], steps[1] = steps[1], steps[0]
    return bool(rules)


def _pool_behind_a_chain(listed: Listed, _: Random) -> bool:
    """Have every endpoint in a chain of its own."""
    rules = [rule for rule in listed.rules("*", "numgen") if "dnat" in json.dumps(rule)]
    for rule in rules:
        protocol, translation = step(rule, "match"), step(rule, "dnat")["dnat"]
        pairs = []
        for number, target in translation["addr"]["map"]["data"]["set"]:
            name = f"endpoint-{number}-{rule['rule']['chain']}"
            address, port = target["concat"]
            listed.declare(name, {"expr": [{"dnat": {"family": listed.family, "addr": address, "port": port}}]})
            pairs.append([number, leading("goto", name)])
        key = translation["addr"]["map"]["key"]
        rule["rule"]["expr"] = [protocol, {"vmap": {"key": key, "data": {"set": pairs}}}]
    return bool(rules)


REWRITES: tuple[Rewrite[Listed], ...] = (
    Rewrite("chains renamed", "consistently", _renamed),
    Rewrite("endpoints reordered", "from the other end", _reordered),
    Rewrite("elements reordered", "in all sets and maps", _elements_reordered),
    Rewrite("rule split", "into a jump to a chain of its own", _split),
    Rewrite("chain inlined", "into its base chain", _inlined),
    Rewrite("counters", "in every rule", _counted),
    Rewrite("comments and handles", "others", _commented),
    Rewrite("rules that nobody reaches", "after those that end a chain", _unreachable),
    Rewrite("jumped to twice", "from both base chains", _jumped_twice),
    Rewrite("firewalld's table", "beside", _foreign_table),
    Rewrite("marks by and and xor", "not by or", _marks_otherwise),
    Rewrite("sets written out", "in the rules", _sets_anonymous),
    Rewrite("networks as ranges", "from the first to the last", _networks_as_ranges),
    Rewrite("map written as rules", "one for each element", _map_as_rules),
    Rewrite("protocols as numbers", "in all elements", _protocols_as_numbers),
    Rewrite("tests swapped", "the second first", _tests_swapped),
    Rewrite("endpoints behind chains", "one for each", _pool_behind_a_chain),
)
