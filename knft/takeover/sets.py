"""Which ipsets are kube-proxy's."""

from collections.abc import Collection
from dataclasses import dataclass

from knft.takeover.names import SETS


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The ipsets to destroy, and those of kube-proxy's that rules of others name."""

    destroy: tuple[str, ...]
    keep: tuple[str, ...]


def plan_sets(listed: str, in_use: Collection[str]) -> SetPlan:
    """Plan from what ``ipset list -name`` printed; the sets ``in_use`` stay."""
    found = [name for name in listed.split() if name in SETS]
    return SetPlan(
        destroy=tuple(name for name in found if name not in in_use),
        keep=tuple(name for name in found if name in in_use),
    )
