"""Maglev tables: the same on all nodes, even shares, and few slots that change."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.nft.objects import Target
from knft.render.maglev import SLOTS_PER_ENDPOINT, TABLE_SIZES, _permutation, maglev_table, table_size
from tests.support.kube_objects import without_deadline

SMALL_PRIMES = (53, 101)


def _targets(count: int) -> list[Target]:
    return [(f"10.{number >> 8}.{number & 255}.7", 8080) for number in range(count)]


def _changed(before: Sequence[Target], after: Sequence[Target]) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))


@without_deadline
@given(st.sets(st.integers(0, 1000), min_size=1, max_size=60), st.sampled_from(SMALL_PRIMES), st.randoms())
def test_table_is_full_even_and_independent_of_the_order(numbers: set[int], size: int, rng: Random) -> None:
    """The shares of any two targets differ by one slot at most."""
    targets = [target for number, target in enumerate(_targets(1001)) if number in numbers]
    table = maglev_table(targets, size)
    rng.shuffle(targets)
    assert table == maglev_table([*targets, *targets[:1]], size)
    counts = [Counter(table)[target] for target in targets]
    assert sum(counts) == len(table) == size
    assert max(counts) - min(counts) <= 1


def test_table_of_known_targets_never_changes() -> None:
    """Another version of knft, on another node, must compute the same table."""
    table = maglev_table(_targets(3), 13)
    assert "".join(str(_targets(3).index(target)) for target in table) == "0222121011000"


@pytest.mark.parametrize("size", [*SMALL_PRIMES, *TABLE_SIZES])
def test_permutation_visits_all_slots(size: int) -> None:
    for target in _targets(5):
        first, step = _permutation(target, size)
        assert len({(first + turn * step) % size for turn in range(size)}) == size


@pytest.mark.parametrize(("count", "most"), [(3, 1.1), (10, 1.4), (100, 4), (600, 7)])
def test_few_slots_change_with_one_target(count: int, most: float) -> None:
    """``most`` is a multiple of the least possible share, 1/n (docs/design/consistent-hashing.md#measurement)."""
    targets = _targets(count)
    table = maglev_table(targets, table_size(count))
    for gone in targets[:: max(count // 3, 1)]:
        left = maglev_table([target for target in targets if target != gone], len(table))
        assert len(table) // count <= _changed(table, left) <= most * len(table) / count


def test_sizes_are_steps_by_number_of_endpoints() -> None:
    counts = (0, 1, 51, 52, 819, 820, 5000, 150_000)
    assert [table_size(count) for count in counts] == [0, 1021, 1021, 16381, 16381, 65521, 65521, 65521]
    assert all(size >= SLOTS_PER_ENDPOINT * count for count in range(1, 3000) if (size := table_size(count)))


def test_table_without_targets_is_empty() -> None:
    assert maglev_table([], table_size(0)) == ()
