"""Which bits of the packet mark rules of nftables tables use: in listings, and in tables in the kernel."""

import json
from typing import Any

import pytest

from knft.errors import CaptureError, KernelError
from knft.kernel.listings import list_foreign_table_json
from knft.leftovers.saved import parse_saved
from knft.preflight.facts import MarkUse
from knft.preflight.nftables_marks import mark_uses, tables_to_read
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in

ALL = 0xFFFFFFFF
MARK: dict[str, Any] = {"meta": {"key": "mark"}}
CT_MARK: dict[str, Any] = {"ct": {"key": "mark"}}
SOURCE: dict[str, Any] = {"payload": {"protocol": "ip", "field": "saddr"}}
KERNEL_RULES = {
    "meta mark set meta mark or 0x4000": [0x4000],
    "meta mark set meta mark and 0xffff00ff or 0x100": [0xFF00],
    "meta mark set meta mark xor 0x4000": [0x4000],
    "meta mark set 0x1": [ALL],
    "meta mark set ct mark and 0xff": [ALL],
    "meta mark set ip saddr map { 192.0.2.1 : 0x1 }": [ALL],
    "meta mark set numgen inc mod 2": [ALL],
    "ct mark set meta mark": [ALL],
    "ct mark set meta mark and 0xff": [0xFF],
    "ct mark set meta mark map { 0x1 : 0x2 }": [ALL],
    "ct mark set 0x4000": [],
    "ct mark and 0x4000 == 0x4000 accept": [],
    "meta mark and 0x4000 != 0 accept": [0x4000],
    "meta mark and 0xff00 { 0x100, 0x200 } accept": [0xFF00],
    "meta mark and 0xffffff00 == 0x100 accept": [0xFFFFFF00],
    "meta mark 0x4000 accept": [0x4000],
    "meta mark != { 0x1, 0x4000 } accept": [0x4001],
    "meta mark > 0x100 accept": [ALL],
    "meta mark 0x100-0x1ff accept": [ALL],
    "meta mark @marks accept": [ALL],
    "meta mark vmap { 0x1 : accept }": [ALL],
    "meta mark and 0xf vmap { 0x1 : accept }": [0xF],
    "meta mark and 0xf . ip saddr { 0x1 . 192.0.2.1 } accept": [0xF],
    "meta mark and 0x4000 == 0x4000 add @marks { meta mark }": [0x4000, None],
    "fib saddr . mark oif exists accept": [],
    "socket mark 0x4000 accept": [],
}


def uses(*statements: Any, family: str = "inet", table: str = "firewall", chain: str = "c") -> tuple[MarkUse, ...]:
    """Return the uses of the mark in a rule."""
    rule = {"family": family, "table": table, "chain": chain, "handle": 2, "expr": statements}
    return mark_uses(json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, {"rule": rule}]}))


def match(left: Any, right: Any, operator: str = "==") -> dict[str, Any]:
    return {"match": {"op": operator, "left": left, "right": right}}


@pytest.mark.parametrize(
    ("statement", "bits"),
    [
        ({"mangle": {"key": MARK, "value": {"|": [{"&": [MARK, ALL ^ 0xFF00]}, 0x100]}}}, 0xFF00),
        ({"mangle": {"key": MARK, "value": CT_MARK}}, ALL),
        ({"mangle": {"key": MARK, "value": "name-in-rt_marks"}}, ALL),
        ({"mangle": {"key": CT_MARK, "value": {"&": [MARK, 0xFF]}}}, 0xFF),
        ({"mangle": {"key": CT_MARK, "value": {"<<": [{"&": [MARK, 0xFF]}, 8]}}}, None),
        (match({"&": [MARK, 0x4000]}, 0, "!="), 0x4000),
        (match(MARK, {"prefix": {"addr": 0x100, "len": 24}}), 0xFFFFFF00),
        (match(MARK, {"set": [1, 0x4000]}), 0x4001),
        (match(MARK, "name-in-rt_marks"), ALL),
        (match(MARK, 0x100, "<"), ALL),
        (match({"concat": [SOURCE, MARK]}, "@pairs"), ALL),
        (match({"jhash": {"mod": 2, "expr": MARK}}, 1), None),
        ({"vmap": {"key": {"&": [MARK, 0xF0]}, "data": "@verdicts"}}, 0xF0),
        ({"dnat": {"addr": {"map": {"key": MARK, "data": "@addresses"}}}}, None),
        ({"xt": {"type": "target", "name": "MARK"}}, None),
        ({"xt": {"type": "target", "name": "HMARK"}}, None),
        ({"xt": None}, None),
        ("tproxy to mark 1", None),
    ],
    ids=json.dumps,
)
def test_rule_uses_bits(statement: Any, bits: int | None) -> None:
    assert [use.bits for use in uses(statement, {"accept": None})] == [bits]


@pytest.mark.parametrize(
    "statement",
    [
        match(CT_MARK, 0x4000),
        match(MARK, 0),
        {"mangle": {"key": CT_MARK, "value": 0x4000}},
        {"xt": {"type": "match", "name": "comment"}},
        {"vmap": {"key": SOURCE, "data": "@verdicts"}},
        {"log": {"prefix": "mark"}},
        "synproxy mss 1460",
    ],
    ids=json.dumps,
)
def test_rule_uses_no_bit(statement: Any) -> None:
    assert uses(statement) == ()


def test_use_names_table_chain_and_rule() -> None:
    (use,) = uses(match({"&": [MARK, 0x4000]}, 0, "!="), {"accept": None})
    assert use == MarkUse("inet firewall", "c", 0x4000, "meta mark & 0x00004000 != 0 accept")


def test_chains_of_kube_proxy_in_tables_of_iptables_are_left_out() -> None:
    """As on a node without the program iptables, which reads these tables."""
    mark = {"xt": {"type": "target", "name": "MARK"}}
    assert uses(mark, family="ip", table="nat", chain="KUBE-MARK-MASQ") == ()
    assert uses(mark, family="ip", table="nat", chain="KUBE-SVC-A") == ()
    assert uses(mark, family="ip", table="nat", chain="OTHER")
    assert uses(mark, family="inet", table="nat", chain="KUBE-MARK-MASQ")


def test_listing_that_is_no_listing_is_an_error() -> None:
    with pytest.raises(CaptureError, match="truncated"):
        mark_uses('{"nftables": [{"metainfo"')


def test_tables_that_iptables_save_prints_are_not_read_again() -> None:
    printed = parse_saved("*nat\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\nCOMMIT\n# Table `raw' is incompatible, use\n")
    comment = "# Table `nat' contains incompatible base-chains, use 'nft' tool to list them.\n"
    incomplete = parse_saved(f"{comment}*nat\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\nCOMMIT\n")
    existing = [("ip", "nat"), ("ip", "raw"), ("ip6", "nat"), ("inet", "nat"), ("ip", "knft"), ("ip6", "kube-proxy")]
    legacy = {"iptables-legacy": printed}
    assert tables_to_read(existing, legacy | {"iptables-nft": printed}).keys() == set(existing[1:4])
    assert tables_to_read(existing, legacy).keys() == set(existing[:4])
    assert tables_to_read(existing, {"iptables-nft": incomplete})["ip", "nat"] == {"PREROUTING", "MINE"}
    assert tables_to_read(existing, {"ip6tables": printed}).keys() == {*existing[:2], ("inet", "nat")}


@pytest.mark.kernel
def test_rules_in_the_kernel(node: Namespace) -> None:
    chains = "".join(f"chain c{number} {{ {rule}; }}\n" for number, rule in enumerate(KERNEL_RULES))
    declared = "set marks { type mark; flags dynamic; elements = { 0x1 }; }\n"
    node.run(["nft", "-f", "-"], stdin=f"table inet firewall {{\n{declared}{chains}}}")
    listing = list_foreign_table_json(library_in(node), "inet", "firewall")
    assert listing is not None
    found = mark_uses(listing)
    for number, (rule, bits) in enumerate(KERNEL_RULES.items()):
        assert [use.bits for use in found if use.chain == f"c{number}"] == bits, rule


@pytest.mark.kernel
def test_table_without_listing(node: Namespace) -> None:
    assert list_foreign_table_json(library_in(node), "inet", "firewall") is None
    node.run(["nft", "add", "table", "ip", "kept"])
    with pytest.raises(KernelError, match="cannot list table ip 'x; flush ruleset': nft does not accept this name"):
        list_foreign_table_json(library_in(node), "ip", "x; flush ruleset")
    assert "kept" in node.run(["nft", "list", "tables"]).stdout
