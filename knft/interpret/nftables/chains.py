"""Reads the hook, type, priority and policy of base chains."""

import re
from typing import Literal, cast, get_args

from knft.errors import CaptureError
from knft.interpret.nftables.listing import ListedChain
from knft.interpret.nftables.scope import full_name
from knft.interpret.rules import BaseChain, Hook

_HOOKS = frozenset(get_args(Hook))
_TYPES: dict[str | None, Literal["filter", "nat", "route"]] = {"filter": "filter", "nat": "nat", "route": "route"}
_POLICIES: dict[str | None, Literal["accept", "drop"]] = {None: "accept", "accept": "accept", "drop": "drop"}
# NF_IP_PRI_* of linux/netfilter_ipv4.h, by the names in nft(8).
_PRIORITIES = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
_PRIORITY = re.compile(r"(?P<name>[a-z]+)?\s*+(?:(?P<sign>[+-])?\s*+(?P<number>[0-9]{1,10}))?")


def read_base_chain(chain: ListedChain) -> BaseChain | None:
    """Return the base chain; None for a regular chain, and for a base chain at ingress or egress."""
    if chain.hook is None or chain.hook in ("ingress", "egress"):
        return None
    if chain.hook not in _HOOKS:
        msg = f'unknown hook "{chain.hook}"'
        raise CaptureError(msg)
    if chain.type not in _TYPES:
        msg = f'unknown chain type "{chain.type}"'
        raise CaptureError(msg)
    if chain.policy not in _POLICIES:
        msg = f'unknown policy "{chain.policy}"'
        raise CaptureError(msg)
    name = full_name(chain.family, chain.table, chain.name)
    hook = cast("Hook", chain.hook)
    return BaseChain(name, hook, _TYPES[chain.type], _read_priority(chain.prio), _POLICIES[chain.policy])


def _read_priority(listed: int | str | None) -> int:
    """Return a priority that is listed as a number, a name, or a name with an offset."""
    if isinstance(listed, int):
        return listed
    match = _PRIORITY.fullmatch(listed.strip()) if listed else None
    name = match["name"] if match else None
    if (
        match is None
        or (name is not None and name not in _PRIORITIES)
        or (name and match["number"] and not match["sign"])
    ):
        msg = f"invalid priority {listed!r}"
        raise CaptureError(msg)
    return (_PRIORITIES[name] if name else 0) + int(f"{match['sign'] or ''}{match['number'] or 0}")
