"""Orders the hooks that a packet traverses and the base chains of each hook, as the kernel does."""

from typing import NamedTuple

from knft.interpret.outcomes import Origin
from knft.interpret.rules import BaseChain, Hook, RuleSet
from knft.interpret.walk.index import IndexedChain

IPVS = "ipvs"
"""The kind of IPVS's hook entries: after the filter chain at input, before it at output (ip_vs_core.c)."""

_IPVS_AT: dict[Hook, int] = {"input": 99, "output": -98}
_SOURCE_HOOKS = frozenset({"input", "postrouting"})
_CONNTRACK_PRIORITY, _DESTINATION_PRIORITY, _SOURCE_PRIORITY = -200, -100, 100


class HookEntry(NamedTuple):
    """A function that a hook calls: a base chain, or IPVS (``chain`` is None).

    ``is_before_conntrack`` tells whether the entry runs before conntrack, when packets have no conntrack state yet.
    """

    hook: Hook
    kind: str
    policy: str
    chain: IndexedChain | None
    is_before_conntrack: bool = False


class HookStage(NamedTuple):
    """A hook that packets traverse, and its entries; with ``nat_is_done`` translated packets skip its nat chains."""

    hook: Hook
    entries: tuple[HookEntry, ...]
    nat_is_done: bool = False


class HookStages:
    """The stages of a rule set and their order."""

    def __init__(self, rules: RuleSet, chains: dict[str, IndexedChain]) -> None:
        """Order a rule set's base chains by hook and priority."""
        hooks: tuple[Hook, ...] = ("prerouting", "input", "forward", "output", "postrouting")
        self._at = {hook: HookStage(hook, _entries(rules, chains, hook)) for hook in hooks}
        self._after_nat = {hook: stage._replace(nat_is_done=True) for hook, stage in self._at.items()}

    def first(self, origin: Origin) -> HookStage:
        """Return the first stage of packets."""
        return self._at["prerouting" if origin == "network" else "output"]

    def after(self, stage: HookStage, *, is_local: bool, origin: Origin) -> HookStage | None:
        """Return the next stage, or None if the packet was delivered locally or has left the node."""
        match stage.hook:
            case "prerouting":
                at = self._after_nat if stage.nat_is_done else self._at
                return at["input" if is_local else "forward"]
            case "forward" | "output":
                return self._at["postrouting"]
            case "postrouting" if is_local and origin == "node":
                # The loopback device receives the packet again, and the packet keeps its conntrack state.
                return self._after_nat["prerouting"]
            case _:
                return None

    def after_ipvs(self) -> HookStage:
        """Return the stage at which IPVS continues packets that it sends to another host."""
        return self._after_nat["output"]


def _entries(rules: RuleSet, chains: dict[str, IndexedChain], hook: Hook) -> tuple[HookEntry, ...]:
    entries = [
        (_order(base), HookEntry(hook, base.kind, base.policy, chains[base.chain], _is_before_conntrack(base)))
        for base in rules.base_chains
        if base.hook == hook
    ]
    if rules.servers and hook in _IPVS_AT:
        entries.append(((_IPVS_AT[hook], 0), HookEntry(hook, IPVS, "accept", None)))
    return tuple(entry for _, entry in sorted(entries, key=lambda item: item[0]))


def _is_before_conntrack(base: BaseChain) -> bool:
    """Return whether a base chain runs before conntrack."""
    return base.hook in ("prerouting", "output") and base.kind != "nat" and base.priority < _CONNTRACK_PRIORITY


def _order(base: BaseChain) -> tuple[int, int]:
    if base.kind != "nat":
        return base.priority, 0
    # The kernel's nat core calls all nat chains of a hook at one priority, whatever theirs (nf_nat_core.c).
    return (_SOURCE_PRIORITY if base.hook in _SOURCE_HOOKS else _DESTINATION_PRIORITY), base.priority
