"""Input that nft does not print is rejected with the position; output of newer versions is parsed, or unknown."""

import json
from typing import Any

import pytest

from knft.errors import CaptureError
from knft.interpret.nftables import read
from knft.interpret.rules import (
    AddToSet,
    Field,
    HasState,
    InSet,
    SetMark,
    Step,
    Translate,
    Unknown,
    Verdict,
    VmapLookup,
    Within,
)
from tests.interpret.nftables.listings import document, rule

TABLE = {"family": "ip", "table": "t"}
BASE_CHAIN = {**TABLE, "name": "c", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
MARK = {"meta": {"key": "mark"}}
RULE = "object 5 (rule ip t c handle 2): "


def match(left: Any, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


REJECTED_LISTINGS = {
    "": "empty",
    " \n": "empty",
    "table ip t {": "not JSON",
    "\x1f\x8b\x08\x00": "not JSON",
    '{"nftables": [{"table": {"family": "ip"': "the JSON is truncated; capture the rule set again",
    '{"items": []}': "not the output of `nft -j list ruleset`",
    "[]": "not the output of `nft -j list ruleset`",
    '{"nftables": {}}': "Expected `array`, got `object` - at `$.nftables`",
    '{"nftables": [5]}': "object 1: Expected `object`, got `int`",
    '{"nftables": [{}]}': "object 1: has 0 names",
    '{"nftables": [{"add": {"table": {"family": "ip", "name": "t"}}}]}': 'object 1: "add" is a command for nft',
    '{"nftables": [{"metainfo": {"json_schema_version": 2}}]}': "object 1 (metainfo): json_schema_version is 2",
    '{"nftables": [{"rule": ' + '{"expr":' * 100_000: "nested too deeply",
    '{"nftables": [' + "[" * 100_000: "nested too deeply",
    document({"chain": {**TABLE, "name": 5}}): "object 2 (chain ip t): Expected `str`, got `int` - at `$.chain.name`",
    document({"rule": {**TABLE, "chain": "c", "handle": 7}}):
        "object 2 (rule ip t c handle 7): Object missing required",
    document({"rule": {**TABLE, "chain": "c", "handle": 7, "expr": []}}):
        'object 2 (rule ip t c handle 7): no chain "ip t c" in the listing',
    document({"chain": {**BASE_CHAIN, "hook": "nowhere"}}): 'object 2 (chain ip t c): unknown hook "nowhere"',
    document({"chain": {**BASE_CHAIN, "type": "fat"}}): 'object 2 (chain ip t c): unknown chain type "fat"',
    document({"chain": {**BASE_CHAIN, "policy": "maybe"}}): 'object 2 (chain ip t c): unknown policy "maybe"',
    document({"chain": {**BASE_CHAIN, "prio": "soon"}}): "object 2 (chain ip t c): invalid priority 'soon'",
    document({"chain": {**BASE_CHAIN, "prio": None}}): "object 2 (chain ip t c): invalid priority None",
    rule({"jump": {"target": "gone"}}): f'{RULE}no chain "ip t gone" in the listing',
    rule({"jump": 5}): f"{RULE}invalid verdict {{'jump': 5}}",
    rule(5): f"{RULE}invalid statement 5",
    rule({"accept": None, "drop": None}): f"{RULE}invalid statement {{'accept': None, 'drop': None}}",
    rule({"match": 5}): f"{RULE}invalid match 5",
    rule(match({"meta": {"key": {}}}, 1)): f"{RULE}invalid meta expression {{'key': {{}}}}",
    rule(match(SADDR, "@gone")): f'{RULE}no set or map "ip t gone" in the listing',
    rule(match(SADDR, 1.5)): f"{RULE}invalid IPv4 address 1.5",
    rule(match(SADDR, {"prefix": {"addr": "10.0.0.0", "len": 33}})): f"{RULE}invalid prefix length 33",
    rule(match(SADDR, {"range": ["10.0.0.2", "10.0.0.1"]})): f"{RULE}empty range '10.0.0.2' to '10.0.0.1'",
    rule(match({"payload": {"protocol": "tcp", "field": "dport"}}, 70000)): f"{RULE}port 70000 is out of range",
    rule(match({"payload": 5}, 1)): f"{RULE}invalid payload expression 5",
    rule(match({"numgen": {"mode": "random", "mod": 0}}, 1)): f"{RULE}",
    rule({"vmap": {"key": SADDR, "data": {"set": [["10.0.0.1"]]}}}): f"{RULE}invalid map element ['10.0.0.1']",
    rule({"vmap": {"key": SADDR, "data": {"set": ["10.0.0.1"]}}}): f"{RULE}invalid verdict None",
    rule({"dnat": {}}): f"{RULE}NAT statement without an address or a port",
}  # fmt: skip


@pytest.mark.parametrize("capture", REJECTED_LISTINGS, ids=[f"{at}" for at in range(len(REJECTED_LISTINGS))])
def test_invalid_listing_is_rejected(capture: str) -> None:
    """The message contains the problem and its position."""
    for given in (capture, capture.encode()):
        with pytest.raises(CaptureError) as raised:
            read(given, 4)
        assert REJECTED_LISTINGS[capture] in str(raised.value)


def test_invalid_unicode_is_rejected() -> None:
    """Both as bytes and as a string with lone surrogates."""
    for given in (
        b"\xff\xfe{",
        "\ud800",
        document({"table": {**TABLE, "name": "x"}}).encode().replace(b"x", b"\xff"),
    ):
        with pytest.raises(CaptureError):
            read(given, 4)


def test_deep_nesting_in_a_rule_is_rejected() -> None:
    """No real rule is nested so deeply; 100 levels are accepted."""
    text = rule("HERE").replace('"HERE"', "[" * 5000 + "]" * 5000)
    with pytest.raises(CaptureError, match="nested too deeply"):
        read(text, 4)
    marks = '{"&": [' * 100 + '{"meta": {"key": "mark"}}' + ", 1]}" * 100
    read(rule(match("HERE", 1), {"accept": None}).replace('"HERE"', marks), 4)


FROM = Within(Field.SOURCE, ((0x0A000001, 0x0A000001),))
ACCEPT = Verdict("accept")
OTHER_VERSIONS: dict[str, tuple[str, tuple[Step, ...]]] = {
    "mark expression with several constants": (
        rule({"mangle": {"key": MARK, "value": {"|": [MARK, 1, 2, 4]}}}), (SetMark(0xFFFFFFF8, 7),)),
    "mask before the mark": (rule({"mangle": {"key": MARK, "value": {"&": [255, MARK]}}}), (SetMark(255, 0),)),
    "nested marks": (
        rule({"mangle": {"key": MARK, "value": {"^": [{"|": [{"&": [MARK, 0xF0]}, 1]}, 0x11]}}}),
        (SetMark(0xF0, 0x10),)),
    "unknown statement": (
        rule(match(SADDR, "10.0.0.1"), {"teleport": {"to": "mars"}}),
        (FROM, Unknown('{"teleport":{"to":"mars"}}'))),
    "unknown expression": (
        rule(match({"phase": {"of": "moon"}}, "full"), match(SADDR, "10.0.0.1"), {"accept": None}),
        (FROM, Unknown('{"phase":{"of":"moon"}} full'), ACCEPT)),
    "unknown key of a NAT statement": (
        rule({"dnat": {"addr": "10.0.0.1", "why": 1}}), (Unknown("dnat to 10.0.0.1"),)),
    "inner header of a tunnel": (
        rule(match({"payload": {"tunnel": "vxlan", "protocol": "ip", "field": "saddr"}}, "10.0.0.1"), {"drop": None}),
        (Unknown('{"payload":{"tunnel":"vxlan","protocol":"ip","field":"saddr"}} 10.0.0.1'), Verdict("drop"))),
    "constant address and port in one expression": (
        rule({"dnat": {"addr": {"concat": ["10.0.0.1", 80]}}}),
        (Translate("dnat", ((0x0A000001, 0x0A000001),), ((80, 80),)),)),
    "iptables extension without a name": (rule({"xt": None}), (Unknown("xt"),)),
    "iptables target": (
        rule(match(SADDR, "10.0.0.1"), {"xt": {"type": "match", "name": "comment"}},
             {"xt": {"type": "target", "name": "DNAT"}}), (FROM, Unknown('xt target "DNAT"'))),
    "iptables log": (rule({"xt": {"type": "match", "name": "limit"}}, {"xt": {"type": "target", "name": "LOG"}}), ()),
    "states as numbers": (rule(match({"ct": {"key": "state"}}, [2, 4], "in"), {"accept": None}),
                          (HasState(frozenset({"established", "related"})), ACCEPT)),
    "service names": (rule(match({"payload": {"protocol": "th", "field": "dport"}}, "http"), {"accept": None}),
                      (Unknown("th dport http"), ACCEPT)),
    "last statement": (rule({"last": {"used": 5}}, {"accept": None}), (ACCEPT,)),
    "flow offload": (rule({"flow": {"op": "add", "flowtable": "@f"}}), ()),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_VERSIONS)
def test_forms_of_other_nft_versions_are_parsed_or_unknown(name: str) -> None:
    """Forms that the installed nft cannot load, as other versions list them."""
    capture, steps = OTHER_VERSIONS[name]
    (found,) = read(capture, 4).chains["ip t c"].rules
    assert found.steps == steps


def test_priorities_are_parsed() -> None:
    """nft lists numbers, names, and names with an offset."""
    for listed, priority in ((-5, -5), ("filter", 0), ("dstnat + 10", -90), ("srcnat-5", 95), ("raw", -300), ("7", 7)):
        (base,) = read(document({"chain": {**BASE_CHAIN, "prio": listed}}), 4).base_chains
        assert base.priority == priority


@pytest.mark.parametrize("flags", ["dormant", "d", ["owner", "dormant"]])
def test_dormant_table_has_no_base_chains(flags: Any) -> None:
    """Its chains are parsed, but no hook calls them."""
    rules = read(document({"table": {"family": "ip", "name": "t", "flags": flags}}, {"chain": BASE_CHAIN}), 4)
    assert (rules.base_chains, list(rules.chains)) == ((), ["ip t c"])


def test_other_families_are_ignored() -> None:
    """Their objects are ignored, unless they are not valid in a listing."""
    others = [{"family": family, "name": "t"} for family in ("ip6", "arp", "bridge", "netdev")]
    chains = [{"chain": {"family": other["family"], "table": "t", "name": "c"}} for other in others]
    strange = {"rule": {"family": "bridge", "table": "t", "chain": "c", "expr": [{"vlan": 5}, 7]}}
    rules = read(document(*({"table": other} for other in others), *chains, strange), 4)
    assert (rules.base_chains, rules.chains, rules.collections) == ((), {}, {})


def _with_set(name: str, flags: list[str], *statements: Any) -> str:
    held = {"set": {**TABLE, "name": name, "type": "ipv4_addr", "flags": flags, "timeout": 60, "elem": ["10.0.0.1"]}}
    capture = json.loads(rule(*statements))
    capture["nftables"].insert(2, held)
    return json.dumps(capture)


def test_set_that_a_rule_adds_to_is_dynamic() -> None:
    """Version 1.0.6 lists no set as dynamic: a set is dynamic if a rule adds elements."""
    looked_up = [match(SADDR, "@s"), {"accept": None}]
    update = {"set": {"op": "update", "elem": SADDR, "set": "@s"}}
    for flags, statements, remembers in (
        (["timeout"], looked_up, False), (["timeout", "dynamic"], looked_up, True),
        (["timeout"], [update, *looked_up], True),
    ):  # fmt: skip
        rules = read(_with_set("s", flags, *statements), 4)
        held = rules.collections["ip t s"]
        assert (held.is_dynamic, held.seconds) == (remembers, 60 if remembers else None)
        assert InSet("ip t s", (Field.SOURCE,)) in rules.chains["ip t c"].rules[0].steps
    assert AddToSet("ip t s", (Field.SOURCE,)) in rules.chains["ip t c"].rules[0].steps


@pytest.mark.parametrize("change", [
    {"set": {"op": "delete", "elem": SADDR, "set": "@s"}},
    {"map": {"op": "update", "elem": SADDR, "data": SADDR, "map": "@s"}},
    {"set": {"op": "add", "elem": {"payload": {"protocol": "ether", "field": "saddr"}}, "set": "@s"}},
    "update @s { ip saddr : ip daddr }",
])  # fmt: skip
def test_lookup_in_a_set_that_rules_change_is_unknown(change: Any) -> None:
    """Whether nft lists the statement as JSON, or as text if its version has no JSON for it."""
    rules = read(_with_set("s", [], match(SADDR, "@s"), {"accept": None}, change), 4)
    assert rules.chains["ip t c"].rules[0].steps == (Unknown("ip saddr @s"), ACCEPT)


def test_anonymous_maps_have_distinct_names() -> None:
    """Even if two rules have the same handle, or none."""
    capture = json.loads(rule({"vmap": {"key": SADDR, "data": {"set": [["10.0.0.1", {"accept": None}]]}}}))
    capture["nftables"].append(json.loads(json.dumps(capture["nftables"][-1]).replace("10.0.0.1", "10.0.0.2")))
    rules = read(json.dumps(capture), 4)
    named = [
        step.collection for rule in rules.chains["ip t c"].rules for step in rule.steps if isinstance(step, VmapLookup)
    ]
    assert [rules.collections[name].elements[0].key for name in named] == [(0x0A000001,), (0x0A000002,)]
