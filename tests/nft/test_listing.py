"""Listings of one table by different versions of libnftables."""

import json
from typing import Any

import pytest

from knft.nft.codec.listing import parse_listing
from knft.nft.objects import ArrayName, Contents, NamedObject

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


def _listed_ids(*values: object) -> str:
    """Return the listing of a map of endpoint IDs, with these values by index."""
    elements = [[{"concat": ["10.96.0.10", 80, index]}, value] for index, value in enumerate(values)]
    types = ["ipv4_addr", "inet_service", "integer"]
    ids = {"family": "ip", "name": "endpoint-ids-tcp", "table": "knft", "type": types, "map": "classid"}
    return json.dumps({"nftables": [{"map": ids | {"elem": elements}}]})


IDS = {"1:2": 0x10002, "0:5": 5, "5:0": 0x50000, "ffff:fffe": 2**32 - 2, "a:b0": 0xA00B0, ":7": 7, "7:": 0x70000}
"""Priorities as libnftables 1.0.6 lists them, two as tc(8) does, and the endpoint IDs that they are."""


def test_endpoint_ids_are_decoded() -> None:
    listing = parse_listing(_listed_ids(*IDS))
    assert listing.contents.arrays == {ArrayName("endpoint-ids-tcp", ("10.96.0.10", 80)): tuple(IDS.values())}
    assert listing.unreadable == frozenset()


@pytest.mark.parametrize("value", ["none", "root", "", "1", "1:2:3", "x:1", 7, None, {"drop": None}, {"concat": [1]}])
def test_map_with_another_value_is_unreadable(value: object) -> None:
    """knft writes no 0 or 2**32 - 1, for which libnftables has names."""
    listing = parse_listing(_listed_ids("1:2", value))
    assert listing.unreadable == {"endpoint-ids-tcp"}
    assert listing.contents == Contents.empty()


def test_clients_are_not_decoded() -> None:
    """Traffic adds them."""
    clients = [{"elem": {"val": {"concat": ["192.0.2.1", "1:2"]}, "timeout": 60, "expires": 9}}]
    declared = {"name": "affinity-clients", "type": ["ipv4_addr", "classid"], "size": 9, "flags": ["timeout"]}
    listing = parse_listing(json.dumps({"nftables": [{"set": declared | {"elem": clients}}]}))
    assert listing.dynamic == {"affinity-clients"}
    assert listing.unreadable == frozenset()
    assert listing.contents == Contents.empty()


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
