"""Digests of rules, to compare the rules that the kernel lists with those that knft expects.

libnftables 1.0.6 and 1.1.3 list a rule as it was sent, except for the forms in ``_normalized``. If another version
lists other forms, knft considers the rules changed and writes them again.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from knft.nft.codec.tables import rule_json
from knft.nft.expressions import Rule

Json = dict[str, Any]

_ENCODER = msgspec.json.Encoder(order="sorted")


# Small, because a chain of a wide Service port with session affinity takes 20 KiB and does not repeat.
@lru_cache(maxsize=1 << 8)
def expected_digest(rules: tuple[Rule, ...]) -> str:
    """Return the digest that a chain with these rules has when it is listed."""
    return listed_digest(rule_json(rule) for rule in rules)


def listed_digest(rules: Iterable[Json]) -> str:
    """Return the digest of a chain's listed rules, in order."""
    digest = hashlib.sha256()
    for rule in rules:
        normalized = ([_normalized(statement) for statement in rule["expr"]], rule.get("comment", ""))
        digest.update(_ENCODER.encode(normalized) + b"\n")
    return digest.hexdigest()[:16]


def _normalized(statement: Any) -> Any:  # noqa: ANN401 - any JSON that libnftables lists
    match statement:
        # A counter is listed with its numbers, which packets change.
        case {"counter": _} | {"reject": {"type": "icmp" | "icmpv6", "expr": "port-unreachable"}}:
            return dict.fromkeys(statement)
        case {"masquerade": {"flags": str(flag)}}:
            return {"masquerade": {"flags": [flag]}}
        case {"dnat": dict(target)}:
            return {"dnat": {name: value for name, value in target.items() if name != "family"}}
        case {"match": {"right": {"prefix": {"addr": str(address), "len": length}}} as match} if length == (
            128 if ":" in address else 32
        ):
            return {"match": {**match, "right": address}}
        case {"match": {"left": {"&": [value, 0x80000000]}, "op": "!=", "right": 0}}:
            return {"match": {"left": value, "op": "!=", "right": {"prefix": {"addr": 0, "len": 1}}}}
        case _:
            return statement
