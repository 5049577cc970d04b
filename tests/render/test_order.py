"""The order of endpoints in an array changes as little as possible."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from knft.nft.objects import Array, Target
from knft.render.order import stable_order
from tests.support.kube_objects import parametrize_cases, without_deadline


def _array(text: str) -> Array:
    """Return an array from a string: a letter for each target, a dot for each gap."""
    return tuple(None if letter == "." else (letter, 80) for letter in text)


def _targets(text: str) -> tuple[Target, ...]:
    return tuple((letter, 80) for letter in text)


class OrderCase(NamedTuple):
    """An array, the new targets, and the resulting array; a letter for each target, a dot for a gap."""

    previous: str
    targets: str
    expected: str


EXAMPLES = {
    "nothing": OrderCase("", "", ""),
    "from nothing, the order of targets": OrderCase("", "cab", "cab"),
    "to nothing": OrderCase("abc", "", ""),
    "the same targets": OrderCase("abc", "abc", "abc"),
    "the same targets in another order": OrderCase("cab", "abc", "cab"),
    "one target added": OrderCase("cab", "abcd", "cabd"),
    "several targets added, in the order of targets": OrderCase("b", "dabc", "bdac"),
    "the last one removed": OrderCase("abc", "ab", "ab"),
    "the first one removed, the last takes its place": OrderCase("abc", "bc", "cb"),
    "one in the middle removed, the last takes its place": OrderCase("abcd", "acd", "adc"),
    "two removed, the last ones take their places": OrderCase("abcde", "bde", "ebd"),
    "one replaced": OrderCase("abc", "axc", "axc"),
    "one replaced, sorted elsewhere": OrderCase("bcd", "acd", "acd"),
    "the last one replaced": OrderCase("abc", "abx", "abx"),
    "all replaced": OrderCase("abc", "xyz", "xyz"),
    "one replaced and one removed": OrderCase("abcd", "xcd", "dxc"),
    "a gap is filled by the new target": OrderCase("a.c", "abc", "abc"),
    "a gap is filled by the last target": OrderCase("a.c", "ac", "ac"),
    "gaps at the end": OrderCase("ab..", "ab", "ab"),
    "only gaps": OrderCase("...", "ab", "ab"),
    "the last one stays when two others are removed": OrderCase("xyc", "cd", "cd"),
    "duplicate of the last target": OrderCase("xycc", "cd", "cd"),
    "duplicate target": OrderCase("aba", "ab", "ab"),
    "duplicate target and a new one": OrderCase("aab", "abc", "acb"),
}


@parametrize_cases(EXAMPLES)
def test_targets_keep_indexes_and_the_last_ones_fill_gaps(case: OrderCase) -> None:
    assert _targets(case.expected) == stable_order(_array(case.previous), _targets(case.targets))


_LIMIT = 60
_target = st.tuples(st.sampled_from(["10.244.0.1", "10.244.0.2", "10.244.0.3"]), st.integers(1, 40))
_distinct = st.lists(_target, max_size=_LIMIT, unique=True).map(tuple)
_some = st.lists(_target, min_size=1, max_size=_LIMIT, unique=True).map(tuple)
_few = st.sampled_from(_targets("abcdefgh"))
_found = st.lists(st.none() | _few, max_size=12).map(tuple)
_distinct_targets = st.lists(_few, unique=True).map(tuple)
_NEW: Target = ("10.244.9.9", 9999)


def _differing(before: Array, after: Array) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


@without_deadline
@given(_found, _distinct_targets)
def test_array_contains_exactly_the_targets(previous: Array, targets: tuple[Target, ...]) -> None:
    """The array in the kernel may have gaps and duplicate targets."""
    assert sorted(targets) == sorted(stable_order(previous, targets))


@without_deadline
@given(_found, _distinct_targets)
def test_targets_at_remaining_indexes_do_not_move(previous: Array, targets: tuple[Target, ...]) -> None:
    """A target at an index that the new array has stays there."""
    found = stable_order(previous, targets)
    stay = [target for target in targets if target in previous[: len(targets)]]
    assert all(previous.index(target) == found.index(target) for target in stay)


@without_deadline
@given(_distinct.flatmap(lambda targets: st.tuples(st.just(targets), st.permutations(targets))))
def test_same_targets_keep_the_array(pair: tuple[tuple[Target, ...], list[Target]]) -> None:
    previous, targets = pair
    assert previous == stable_order(previous, targets)


@without_deadline
@given(_some, st.data())
def test_removal_moves_at_most_one_target(previous: tuple[Target, ...], data: st.DataObject) -> None:
    """The last target takes the free index."""
    index = data.draw(st.integers(0, len(previous) - 1))
    found = stable_order(previous, sorted(set(previous) - {previous[index]}))
    expected = [*previous[:-1]]
    if index < len(expected):
        expected[index] = previous[-1]
    assert tuple(expected) == found


@without_deadline
@given(_some, st.data())
def test_replacement_changes_one_index(previous: tuple[Target, ...], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(previous) - 1))
    found = stable_order(previous, sorted({*previous, _NEW} - {previous[index]}))
    assert (*previous[:index], _NEW, *previous[index + 1 :]) == found
    assert _differing(previous, found) == 1


@without_deadline
@given(_distinct)
def test_new_target_is_appended(previous: tuple[Target, ...]) -> None:
    assert (*previous, _NEW) == stable_order(previous, sorted({*previous, _NEW}))


@without_deadline
@given(_distinct, st.lists(st.integers(0, _LIMIT), max_size=10))
def test_gaps_are_filled_with_new_targets(targets: tuple[Target, ...], holes: list[int]) -> None:
    """The number of targets equals the number of indexes, so only the gaps change."""
    previous = tuple(None if index in holes else target for index, target in enumerate(targets))
    found = stable_order(previous, targets)
    assert all(old in (None, new) for old, new in zip(previous, found, strict=True))
    assert sorted(targets) == sorted(found)


@without_deadline
@given(st.lists(st.integers(0, _LIMIT), max_size=12))
def test_scaling_moves_only_targets_whose_index_is_gone(sizes: list[int]) -> None:
    """The pods that remain after scaling down are not always the first ones."""
    current: tuple[Target, ...] = ()
    for size in sizes:
        survivors = sorted(current, key=lambda target: (target[1] * 7) % 61)[:size]
        names = (("10.244.0.1", port) for port in range(2 * _LIMIT))
        new = [target for target in names if target not in current][: size - len(survivors)]
        following = stable_order(current, sorted([*survivors, *new]))
        moved = sum(current.index(target) != following.index(target) for target in survivors)
        displaced = sum(current.index(target) >= size for target in survivors)
        assert (size, displaced) == (len(following), moved)
        current = following
