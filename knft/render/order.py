"""The order of endpoints in an array: as little as possible moves (DESIGN.md 1.1, "Order is an input")."""

from collections.abc import Sequence

from knft.nft.objects import Array, Target


def place(previous: Array, wanted: Sequence[Target]) -> tuple[Target, ...]:
    """Return ``wanted`` in an order that differs from ``previous`` in as few places as possible.

    A target keeps its index where the array is still long enough. Free indexes go first to targets that lost
    theirs at the end, the last one first, then to new ones in the order of ``wanted``. So one target
    added, removed or replaced changes one index, or two where the last one takes a removed one's place.
    """
    if previous == wanted:
        return tuple(wanted)
    remaining = dict.fromkeys(wanted)
    size = len(remaining)
    slots: list[Target | None] = [None] * size
    for index, target in enumerate(previous[:size]):
        if target is not None and target in remaining:
            slots[index] = target
            del remaining[target]
    displaced = [target for target in reversed(previous[size:]) if target in remaining]
    homeless = iter(dict.fromkeys((*displaced, *remaining)))
    return tuple(next(homeless) if target is None else target for target in slots)
