"""Base chains: where the kernel enters a table, as it is listed, and as a value."""

import re
from typing import Literal, cast, get_args

from knft.interpret.nftables.document import ListedChain
from knft.interpret.nftables.problems import Malformed
from knft.interpret.nftables.scope import full_name
from knft.interpret.rules import BaseChain, Hook

_HOOKS = frozenset(get_args(Hook))
_KINDS: dict[str | None, Literal["filter", "nat", "route"]] = {"filter": "filter", "nat": "nat", "route": "route"}
_POLICIES: dict[str | None, Literal["accept", "drop"]] = {None: "accept", "accept": "accept", "drop": "drop"}
# linux/netfilter_ipv4.h, NF_IP_PRI_*, by nft's names.
_PRIORITIES = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
_PRIORITY = re.compile(r"(?P<name>[a-z]+)?\s*(?:(?P<sign>[+-])?\s*(?P<number>[0-9]{1,10}))?")


def base_chain(chain: ListedChain) -> BaseChain | None:
    """Return where a chain is entered; None for one that is reached by jumps alone, or before IP."""
    if chain.hook is None or chain.hook in ("ingress", "egress"):
        return None
    if chain.hook not in _HOOKS:
        msg = f'"{chain.hook}" is no hook'
        raise Malformed(msg)
    if chain.type not in _KINDS:
        msg = f'"{chain.type}" is no type of a chain'
        raise Malformed(msg)
    if chain.policy not in _POLICIES:
        msg = f'"{chain.policy}" is no policy'
        raise Malformed(msg)
    name = full_name(chain.family, chain.table, chain.name)
    hook = cast("Hook", chain.hook)
    return BaseChain(name, hook, _KINDS[chain.type], _priority(chain.prio), _POLICIES[chain.policy])


def _priority(listed: int | str | None) -> int:
    """Return a priority: a number, a name, or a name and what is added to it."""
    if isinstance(listed, int):
        return listed
    found = _PRIORITY.fullmatch(listed.strip()) if listed else None
    name = found["name"] if found else None
    if (
        found is None
        or (name is not None and name not in _PRIORITIES)
        or (name and found["number"] and not found["sign"])
    ):
        msg = f"{listed!r} is no priority"
        raise Malformed(msg)
    return (_PRIORITIES[name] if name else 0) + int(f"{found['sign'] or ''}{found['number'] or 0}")
