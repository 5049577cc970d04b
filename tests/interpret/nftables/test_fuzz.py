"""Any mutated capture is either parsed or rejected with a CaptureError, never with another exception."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knft.errors import CaptureError
from knft.interpret.nftables import read
from tests.interpret.nftables.listings import fresh_namespace, listed, rule
from tests.interpret.nftables.other_programs import OTHER_PROGRAMS
from tests.interpret.nftables.rule_forms import CONTAINERS, PLACED, chain

EVIL: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 65536, 2**32, 2**64, 10**400, 1.5, 1e308, "", "*", "@", "@gone", "tcp", "10.0.0.1",
    "::1", "999.1.1.1", "a" * 300, "\x00", "é", "jump", [], {}, [[]], [{}], [None, None], {"": None}, {"set": []},
    {"set": "@s"}, {"concat": []}, {"concat": 5}, {"range": [2, 1]}, {"range": []}, {"elem": 5}, {"|": []}, {"&": [1]},
    {"prefix": {"addr": 5, "len": "x"}}, {"elem": {"val": None}}, {"&": [[], {}]}, {"map": {"key": 1, "data": 2}},
    {"accept": None}, {"jump": {"target": "c"}}, {"meta": {"key": 5}}, {"ct": {"key": "state", "dir": 5}},
    {"payload": {}},
)  # fmt: skip
ROUNDS = 400


@pytest.fixture(scope="module")
def captures() -> list[str]:
    forms = "\n".join((CONTAINERS, *map(chain, range(len(PLACED))), "}"))
    with fresh_namespace() as namespace:
        return [listed(namespace, text) for text in (forms, *OTHER_PROGRAMS.values())]


def _read(capture: bytes | str) -> None:
    for version in (4, 6):
        try:
            read(capture, version)
        except CaptureError as error:
            assert str(error)  # noqa: PT017 - any message


@pytest.mark.kernel
def test_mutated_captures(captures: list[str]) -> None:
    """Mutations replace values, remove or repeat objects, change bytes and truncate the text."""
    chance = random.Random(6)  # noqa: S311 - it is to be the same each time
    parsed = [json.loads(capture)["nftables"] for capture in captures]
    for _ in range(ROUNDS):
        some = _part(chance, chance.choice(parsed))
        for at in chance.sample(range(len(some)), chance.choice((1, 1, 2, 3))):
            some[at] = _mutated(chance, some[at])
        if chance.random() < 0.2:
            some.pop(chance.randrange(len(some)))
        text = json.dumps({"nftables": some}).encode()
        _read(text if chance.random() < 0.9 else _cut(chance, text))


def _part(chance: random.Random, objects: list[Any]) -> list[Any]:
    """Return a capture with only a few of its rules, so that parsing is fast."""
    rules = [at for at, item in enumerate(objects) if "rule" in item]
    kept = set(chance.sample(rules, min(len(rules), 8)))
    return [item for at, item in enumerate(objects) if "rule" not in item or at in kept]


def _mutated(chance: random.Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or chance.random() < 0.03:
        return chance.choice(EVIL)
    changed: Any = value.copy()
    at = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed[at] = _mutated(chance, value[at])
    return changed


def _cut(chance: random.Random, text: bytes) -> bytes:
    at = chance.randrange(len(text))
    return text[:at] + chance.choice((b"", bytes([chance.randrange(256)]) + text[at + 1 :], text[at + 3 :]))


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=6), st.sampled_from([
    "@s", "ip", "tcp", "10.0.0.1", "saddr", "dport", "mark", "state", "new", "==", "!=", "in", "random", "local",
]))  # fmt: skip
_WORDS = st.sampled_from([
    "match", "op", "left", "right", "payload", "protocol", "field", "meta", "ct", "key", "vmap", "data", "set", "elem",
    "val", "range", "prefix", "addr", "len", "concat", "map", "dnat", "snat", "port", "mangle", "value", "fib",
    "result", "flags", "numgen", "mode", "mod", "offset", "jump", "target", "accept", "|", "&", "^", "masquerade",
    "limit", "xt",
])  # fmt: skip
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3), max_leaves=12
)
_SELECTORS = st.sampled_from([
    {"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"protocol": "tcp", "field": "dport"}},
    {"payload": {"protocol": "tcp", "field": "flags"}}, {"meta": {"key": "mark"}}, {"meta": {"key": "iifname"}},
    {"ct": {"key": "state"}}, {"ct": {"key": "status"}}, {"fib": {"result": "type", "flags": ["daddr", "iif"]}},
    {"numgen": {"mode": "random", "mod": 3, "offset": 0}}, {"meta": {"key": "nfproto"}}, {"exthdr": {"name": "frag"}},
    {"&": [{"payload": {"protocol": "ip", "field": "saddr"}}, "255.0.0.0"]}, {"meta": {"key": "pkttype"}},
])  # fmt: skip
_KEYS = _SELECTORS | st.builds(lambda parts: {"concat": parts}, st.lists(_SELECTORS, max_size=3)) | _TREES
_STATEMENTS = st.one_of(
    _TREES,
    st.builds(
        lambda op, left, right: {"match": {"op": op, "left": left, "right": right}},
        st.sampled_from(["==", "!=", "in", "!", "<", ">="]), _KEYS, _TREES,
    ),
    st.builds(lambda key, data: {"vmap": {"key": key, "data": {"set": data}}}, _KEYS, _TREES),
    st.builds(lambda key, data: {"dnat": {"addr": {"map": {"key": key, "data": {"set": data}}}}}, _KEYS, _TREES),
    st.builds(lambda key, value: {"mangle": {"key": key, "value": value}}, _SELECTORS, _TREES),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_STATEMENTS, max_size=4))
def test_random_statements(statements: list[Any]) -> None:
    """Statements similar to nft's, with random contents."""
    _read(rule(*statements, {"accept": None}))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_random_input(capture: bytes | str) -> None:
    """Arbitrary bytes and text."""
    _read(capture)
