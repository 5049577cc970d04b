"""Listings of one table by different versions of libnftables."""

import json
from typing import Any

import pytest

from knft.nft.codec.listing import parse_listing
from knft.nft.objects import ArrayName, NamedObject

NUMGEN = {"numgen": {"mode": "random", "mod": 65536, "offset": 0}}


def _payload(protocol: str, field: str) -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": field}}


# The declarations of one map, by version: types, then the type of what it leads to.
DECLARATIONS = {
    "1.0.6": (["ipv4_addr", "inet_service", "integer"], "ipv4_addr . inet_service"),
    "1.1.3": (
        {"typeof": {"concat": [_payload("ip", "daddr"), _payload("tcp", "dport"), NUMGEN]}},
        ["ipv4_addr", "inet_service"],
    ),
}


@pytest.mark.parametrize("version", DECLARATIONS)
def test_map_declared_with_typeof_is_decoded(version: str) -> None:
    types, target = DECLARATIONS[version]
    elements = [[{"concat": ["10.96.0.10", 80, index]}, {"concat": [f"10.244.1.{index}", 8080]}] for index in (0, 2)]
    endpoints = {"family": "ip", "name": "endpoints-tcp", "table": "knft", "type": types, "map": target}
    listing = parse_listing(json.dumps({"nftables": [{"map": endpoints | {"elem": elements}}]}))
    expected = (("10.244.1.0", 8080), None, ("10.244.1.2", 8080))
    assert listing.contents.arrays == {ArrayName("endpoints-tcp", ("10.96.0.10", 80)): expected}


@pytest.mark.parametrize("types", ["ipv4_addr", {"typeof": _payload("ip", "daddr")}], ids=["1.0.6", "1.1.3"])
def test_set_with_a_single_key_part_is_decoded(types: object) -> None:
    listing = parse_listing(json.dumps({"nftables": [{"set": {"name": "s", "type": types, "elem": ["10.96.0.10"]}}]}))
    assert listing.contents.members == {("s", ("10.96.0.10",))}


FLOWTABLES = [
    {"family": "ip", "name": "f", "table": "knft", "handle": 3, "hook": "ingress", "prio": 0, "dev": "eth0"},
    {"family": "ip", "name": "g", "table": "knft", "handle": 4, "hook": "ingress", "prio": 0, "dev": ["eth0", "eth1"]},
]
"""As libnftables 1.0.6 and 1.1.3 print them, with one device and with several."""


def test_flowtables_and_stateful_objects_are_listed_by_kind_and_name() -> None:
    objects = [
        {"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
        {"table": {"family": "ip", "name": "knft", "handle": 1}},
        *({"flowtable": flowtable} for flowtable in FLOWTABLES),
        {"ct helper": {"family": "ip", "name": "c", "table": "knft", "handle": 9, "type": "ftp", "protocol": "tcp"}},
        {"tunnel": {"family": "ip", "name": "of a later version", "table": "knft", "handle": 10}},
    ]
    listing = parse_listing(json.dumps({"nftables": objects}))
    assert {str(each) for each in listing.other_objects} == {
        *("flowtable f", "flowtable g", "ct helper c", "tunnel of a later version"),
    }
    assert listing.rule_counts == {}


def test_unprintable_letters_of_names_are_not_printed() -> None:
    assert str(NamedObject("chain", "a\x1b[31m\nb")) == "chain a?[31m?b"
