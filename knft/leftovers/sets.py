"""Finds kube-proxy's ipsets."""

from collections.abc import Collection
from dataclasses import dataclass

from knft.leftovers.names import SETS


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The ipsets of kube-proxy to destroy, and those that rules of other programs use."""

    destroy: tuple[str, ...]
    keep: tuple[str, ...]


def plan_sets(listed: str, in_use: Collection[str]) -> SetPlan:
    """Return the plan for the output of ``ipset list -name``; the sets ``in_use`` stay."""
    found = [name for name in listed.split() if name in SETS]
    return SetPlan(
        destroy=tuple(name for name in found if name not in in_use),
        keep=tuple(name for name in found if name in in_use),
    )
