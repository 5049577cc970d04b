"""Orders endpoints in an array such that few indexes change (docs/design/endpoint-maps.md#order)."""

from collections.abc import Sequence

from knft.nft.objects import Array, Target


def stable_order(previous: Array, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return ``targets`` in an order that differs from ``previous`` at as few indexes as possible.

    A target keeps its index if the array is still long enough. If the array got shorter, the targets beyond its end get
    the free indexes first, starting with the last target. New targets get the other free indexes, in order. So adding,
    removing or replacing one target changes one index, or two if the last target moves to the index of a removed one.
    """
    if previous == targets:
        return tuple(targets)
    remaining = dict.fromkeys(targets)
    if not previous:
        return tuple(remaining)
    size = len(remaining)
    slots: list[Target | None] = [None] * size
    for index, target in enumerate(previous[:size]):
        if target is not None and target in remaining:
            slots[index] = target
            del remaining[target]
    displaced = [target for target in reversed(previous[size:]) if target in remaining]
    unplaced = iter(dict.fromkeys((*displaced, *remaining)))
    return tuple(next(unplaced) if target is None else target for target in slots)
