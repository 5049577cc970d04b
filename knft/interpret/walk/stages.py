"""The hooks that a packet passes, and the base chains at each, in the kernel's order."""

from typing import NamedTuple

from knft.interpret.outcomes import Origin
from knft.interpret.rules import BaseChain, Hook, RuleSet
from knft.interpret.walk.index import IndexedChain

IPVS = "ipvs"
"""Where IPVS looks at a packet: after the filter at input, before it at output (ip_vs_core.c)."""

_IPVS_AT: dict[Hook, int] = {"input": 99, "output": -98}
_SOURCE_HOOKS = frozenset({"input", "postrouting"})
_CONNTRACK_PRIORITY, _DESTINATION_PRIORITY, _SOURCE_PRIORITY = -200, -100, 100


class Stop(NamedTuple):
    """A place at a hook: a base chain, or IPVS' look at the packet, where there is no chain.

    ``is_early`` tells whether a packet that comes in or is made has no connection yet.
    """

    hook: Hook
    kind: str
    policy: str
    chain: IndexedChain | None
    is_early: bool = False


class Stage(NamedTuple):
    """A hook as a packet comes to it; ``again`` where it has been translated already, so that nat chains are over."""

    hook: Hook
    stops: tuple[Stop, ...]
    again: bool = False


class Stages:
    """Which stage follows which."""

    def __init__(self, rules: RuleSet, chains: dict[str, IndexedChain]) -> None:
        """Sort a rule set's base chains."""
        hooks: tuple[Hook, ...] = ("prerouting", "input", "forward", "output", "postrouting")
        self._at = {hook: Stage(hook, _stops(rules, chains, hook)) for hook in hooks}
        self._again = {hook: stage._replace(again=True) for hook, stage in self._at.items()}

    def first(self, origin: Origin) -> Stage:
        """Return the stage that packets meet first."""
        return self._at["prerouting" if origin == "network" else "output"]

    def after(self, stage: Stage, *, is_local: bool, origin: Origin) -> Stage | None:
        """Return the stage after another, or None where a packet has arrived or left."""
        match stage.hook:
            case "prerouting":
                at = self._again if stage.again else self._at
                return at["input" if is_local else "forward"]
            case "forward" | "output":
                return self._at["postrouting"]
            case "postrouting" if is_local and origin == "node":
                # Through the loopback device it comes in again, with its connection's state.
                return self._again["prerouting"]
            case _:
                return None

    def sent_on(self) -> Stage:
        """Return the stage of a packet that came in, and that IPVS sends to another host."""
        return self._again["output"]


def _stops(rules: RuleSet, chains: dict[str, IndexedChain], hook: Hook) -> tuple[Stop, ...]:
    stops = [
        (_order(base), Stop(hook, base.kind, base.policy, chains[base.chain], _is_early(base)))
        for base in rules.bases
        if base.hook == hook
    ]
    if rules.servers and hook in _IPVS_AT:
        stops.append(((_IPVS_AT[hook], 0), Stop(hook, IPVS, "accept", None)))
    return tuple(stop for _, stop in sorted(stops, key=lambda item: item[0]))


def _is_early(base: BaseChain) -> bool:
    """Tell whether a chain comes before conntrack."""
    return base.hook in ("prerouting", "output") and base.kind != "nat" and base.priority < _CONNTRACK_PRIORITY


def _order(base: BaseChain) -> tuple[int, int]:
    if base.kind != "nat":
        return base.priority, 0
    # The nat core of the kernel calls all nat chains of a hook, wherever they say they are (nf_nat_core.c).
    return (_SOURCE_PRIORITY if base.hook in _SOURCE_HOOKS else _DESTINATION_PRIORITY), base.priority
