"""Whether rules say what they should: digests of rules as they are listed, and of the same rules as knft writes them.

libnftables 1.0.6 and 1.1.3 list a rule as it was given to them, but for the forms in ``_as_listed``. A version that has
other ways is no harm: its rules are taken for other ones, and written again.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from knft.nft.codec.tables import rule_json
from knft.nft.expressions import Rule

Json = dict[str, Any]


@lru_cache(maxsize=1 << 11)
def written_rules(rules: tuple[Rule, ...]) -> str:
    """Return the digest of a chain's rules as they are listed where they are in the kernel."""
    return listed_rules(rule_json(rule) for rule in rules)


def listed_rules(rules: Iterable[Json]) -> str:
    """Return the digest of a chain's rules, in the order in which they are listed."""
    digest = hashlib.sha256()
    for rule in rules:
        said = ([_as_listed(statement) for statement in rule["expr"]], rule.get("comment", ""))
        digest.update(json.dumps(said, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()[:16]


def _as_listed(statement: Any) -> Any:  # noqa: ANN401 - whatever another library may list
    match statement:
        case {"reject": {"type": "icmp" | "icmpv6", "expr": "port-unreachable"}}:
            return {"reject": None}
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
