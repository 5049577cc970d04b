"""Endpoint IDs and the statements of session affinity as JSON and text, and as they are listed."""

import msgspec
import pytest

from knft.nft.codec.elements import element_json, element_text, elements_json
from knft.nft.codec.listed_table import listed_table
from knft.nft.codec.listing import parse_listing
from knft.nft.codec.statements import statement_json, statement_text
from knft.nft.codec.tables import transaction_commands
from knft.nft.expressions import ClearPriority, Concat, Constant, Meta, Payload, SetPriorityFromMap, Update
from knft.nft.objects import ArrayName, Chain, Container, Key, Table, Value
from knft.nft.transaction import Transaction
from tests.support.kernel_harness import check_schema

KEY: Key = ("10.96.0.1", 80, 0)
HIGHEST = 2**32 - 2


def test_elements_with_endpoint_ids_are_numbers() -> None:
    """Libnftables accepts a number as a packet's priority."""
    elements: dict[Key, Value] = {KEY: 0x10002, ("10.96.0.1", 80, 1): HIGHEST}
    assert elements_json(elements) == [
        [{"concat": KEY}, 0x10002],
        [{"concat": ("10.96.0.1", 80, 1)}, HIGHEST],
    ]
    assert elements_json(elements) == [element_json(key, value) for key, value in elements.items()]
    assert [element_text(key, value) for key, value in elements.items()] == [
        "10.96.0.1 . 80 . 0 : 65538",
        "10.96.0.1 . 80 . 1 : 4294967294",
    ]


@pytest.mark.parametrize("number", [1, HIGHEST])
def test_transaction_with_endpoint_ids_matches_the_schema(number: int) -> None:
    added: dict[str, dict[Key, Value]] = {"endpoint-ids-tcp": {KEY: number}, "nodeport-endpoint-ids-udp": {(80, 0): 7}}
    wide: dict[Key, Value] = {(2**31 - 1, 1, 65535): number}
    transaction = Transaction(
        "ip", "knft", added=added | {"wide-endpoint-ids": wide}, removed={"endpoint-ids-tcp": (KEY,)}
    )
    sent = transaction_commands(transaction).encode()
    check_schema(sent)
    commands = msgspec.json.decode(sent)["nftables"]
    assert [command["add"]["element"]["elem"] for command in commands if "add" in command] == [
        [[{"concat": list(KEY)}, number]],
        [[{"concat": [80, 0]}, 7]],
        [[{"concat": [2**31 - 1, 1, 65535]}, number]],
    ]


def test_transaction_with_chains_has_endpoint_ids_as_text() -> None:
    transaction = Transaction("ip", "knft", chains=(Chain("pool"),), added={"endpoint-ids-tcp": {KEY: HIGHEST}})
    assert transaction_commands(transaction).splitlines() == [
        "add chain ip knft pool",
        "flush chain ip knft pool",
        "add element ip knft endpoint-ids-tcp {",
        "10.96.0.1 . 80 . 0 : 4294967294",
        "}",
    ]


PRIORITY = {"meta": {"key": "priority"}}


def test_statements_that_change_the_priority() -> None:
    """The names ``none`` and ``root`` stand for 0 and 2**32 - 1 in both forms."""
    assert statement_text(ClearPriority()) == "meta priority set none"
    assert statement_json(ClearPriority()) == {"mangle": {"key": PRIORITY, "value": "none"}}
    look_up = SetPriorityFromMap(Concat((Payload("ip", "daddr"), Constant(3))), "ids")
    assert statement_text(look_up) == "meta priority set ip daddr . numgen random mod 1 offset 3 map @ids"
    key = {"concat": [{"payload": {"protocol": "ip", "field": "daddr"}}, _numgen(3)]}
    assert statement_json(look_up) == {"mangle": {"key": PRIORITY, "value": {"map": {"key": key, "data": "@ids"}}}}


def _numgen(value: int) -> object:
    return {"numgen": {"mode": "random", "mod": 1, "offset": value}}


def test_client_is_remembered_with_the_priority() -> None:
    remember = Update("affinity-clients", Concat((Payload("ip6", "saddr"), Meta("priority"))), 10800)
    assert statement_text(remember) == "update @affinity-clients { ip6 saddr . meta priority timeout 10800s }"
    key = {"concat": [{"payload": {"protocol": "ip6", "field": "saddr"}}, PRIORITY]}
    element = {"elem": {"val": key, "timeout": 10800}}
    assert statement_json(remember) == {"set": {"op": "update", "elem": element, "set": "@affinity-clients"}}


@pytest.mark.parametrize(
    ("number", "listed"),
    [(1, "0:1"), (0xFFFF, "0:ffff"), (0x10000, "1:0"), (0x10002, "1:2"), (HIGHEST, "ffff:fffe")],
)
def test_listed_table_has_priorities_as_libnftables_lists_them(number: int, listed: str) -> None:
    ids = Container("ids", "ip daddr . tcp dport . numgen random mod 65536", "meta priority", by_expression=True)
    text = listed_table(Table("ip", "knft", "", (ids,), (), {"ids": {KEY: number}}))
    *_, found = msgspec.json.decode(text)["nftables"]
    assert found["map"]["elem"] == [[{"concat": list(KEY)}, listed]]
    assert found["map"]["map"] == "classid"
    assert parse_listing(text).contents.arrays == {ArrayName("ids", KEY[:2]): (number,)}
