"""Statements and expressions as ``nft -j list ruleset`` prints them."""

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]
Expression = dict[str, Any]

PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
MARK: Expression = {"meta": {"key": "mark"}}
PROTOCOL: Expression = {"meta": {"key": "l4proto"}}
PORT: Expression = {"payload": {"protocol": "th", "field": "dport"}}
MASQUERADE: Expression = {"masquerade": {"flags": "fully-random"}}
DROP: Expression = {"drop": None}


def match(left: Any, right: Any, op: str = "==") -> Expression:  # noqa: ANN401 - any JSON value
    """Return a match statement."""
    return {"match": {"op": op, "left": left, "right": right}}


def jump_to(kind: str, target: str) -> Expression:
    """Return a jump or goto statement."""
    return {kind: {"target": target}}


def concat(*parts: object) -> Expression:
    """Return a concatenation."""
    return {"concat": list(parts)}


def vmap(key: object, name: str) -> Expression:
    """Return a vmap statement."""
    return {"vmap": {"key": key, "data": f"@{name}"}}


def network(cidr: str) -> Expression | str:
    """Return a network, or an address if that is all it contains."""
    address, _, length = cidr.partition("/")
    if int(length) == (128 if ":" in address else 32):
        return address
    return {"prefix": {"addr": address, "len": int(length)}}


def networks(cidrs: Sequence[str]) -> Expression | str:
    """Return a set of networks; nft lists a set with one element as that element."""
    return network(cidrs[0]) if len(cidrs) == 1 else {"set": [network(cidr) for cidr in cidrs]}


def numgen(count: int) -> Expression:
    """Return a random number below ``count``."""
    return {"numgen": {"mode": "random", "mod": count, "offset": 0}}


def set_mark(mark: int) -> Expression:
    """Return the statement that requests masquerading."""
    return {"mangle": {"key": MARK, "value": {"|": [MARK, mark]}}}


def rule(*steps: Expression, comment: str = "") -> Object:
    """Return the statements and the comment of a rule."""
    return {"expr": list(steps), **({"comment": comment} if comment else {})}
