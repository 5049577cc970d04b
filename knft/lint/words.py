"""Words of findings: nodes."""

from collections.abc import Collection
from typing import Any

from knft.explain.words import listed

_BOTH = 2


def nodes_text(nodes: Collection[str], total: int) -> str:
    """Return nodes for a sentence."""
    if total == 1 or len(nodes) < total:
        return listed(nodes)
    return "both nodes" if total == _BOTH else f"all {total} nodes"


def share_values(nodes: Collection[str], total: int) -> dict[str, Any]:
    """Return the values of texts about some nodes of all."""
    named = nodes_text(nodes, total)
    share = f"{len(nodes)} of {total} nodes ({listed(nodes)})"
    return {
        "which": named if len(nodes) == total else share,
        "have": "has" if len(nodes) == 1 else "have",
        "at": named,
        "any": "any node" if len(nodes) == total > 1 else named,
    }
