"""IDs of endpoints: an endpoint keeps its ID, and a new one gets an ID that no client has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.nft.objects import Array, ArrayName, EndpointId, Target
from knft.render import endpoint_ids
from knft.render.endpoint_ids import assign_ids, previous_ids

A, B, C, D = ((f"10.244.0.{number}", 8080) for number in range(1, 5))
HIGHEST = (1 << 32) - 2


def test_endpoint_keeps_its_id() -> None:
    first = assign_ids([A, B], {}, "first")
    assert assign_ids([B, A, C], first, "second").items() >= first.items()
    assert assign_ids([B], first, "second") == {B: first[B]}


def test_ids_depend_on_the_seed_only() -> None:
    """Different Service ports get different IDs, since their names are in the seed."""
    assert assign_ids([A, B], {}, "web 1.0") == assign_ids([A, B], {}, "web 1.0")
    assert not set(assign_ids([A, B], {}, "web 1.0").values()) & set(assign_ids([A, B], {}, "web 2.0").values())
    assert not set(assign_ids([A, B], {}, "web 1.0").values()) & set(assign_ids([A, B], {}, "api 1.0").values())


def test_endpoint_that_is_added_again_gets_another_id() -> None:
    first = assign_ids([A, B], {}, "1.0")
    second = assign_ids([A], first, "2.0")
    third = assign_ids([A, B], second, "3.0")
    assert third[A] == first[A]
    assert third[B] != first[B]


def test_new_endpoint_does_not_get_the_id_of_a_removed_one() -> None:
    """The clients of the removed one are still in the kernel's set. The same seed would give the same ID."""
    first = assign_ids([A], {}, "seed")
    (number,) = first.values()
    assert assign_ids([B], first, "seed") == {B: number + 1}


def test_new_endpoint_does_not_get_an_id_that_is_in_use() -> None:
    number = assign_ids([C], {}, "seed")[C]
    assert assign_ids([A, B, C, D], {A: number, B: number + 1}, "seed") == {
        A: number,
        B: number + 1,
        C: number + 2,
        D: number + 3,
    }


def test_endpoints_with_the_same_previous_id_get_different_ones() -> None:
    """Another program may have changed the map."""
    assigned = assign_ids([A, B, C], {A: 7, B: 7, C: 8}, "seed")
    assert assigned[C] == 8
    assert 7 in {assigned[A], assigned[B]}
    assert len(set(assigned.values())) == 3


@pytest.mark.parametrize("number", [-1, 0, HIGHEST + 1])
def test_previous_id_that_knft_never_assigns_is_replaced(number: int) -> None:
    """0 is the priority of packets without an ID."""
    (assigned,) = assign_ids([A], {A: number}, "seed").values()
    assert 1 <= assigned <= HIGHEST


def test_ids_begin_again_behind_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_ids, "_IDS", 4)
    for seed in range(20):
        assert sorted(assign_ids([A, B, C, D], {}, str(seed)).values()) == [1, 2, 3, 4]
        assert assign_ids([A, B], {A: 2, C: 3, D: 4}, str(seed)) == {A: 2, B: 1}


_targets = st.builds(lambda number: (f"10.244.0.{number}", 8080), st.integers(1, 12))


@pytest.mark.property
@given(
    targets=st.lists(_targets, unique=True),
    previous=st.dictionaries(_targets, st.one_of(st.integers(0, 5), st.integers(HIGHEST - 3, HIGHEST + 1))),
    seed=st.text(),
)
def test_ids_are_different_and_valid(targets: list[Target], previous: dict[Target, EndpointId], seed: str) -> None:
    """Whatever other programs have written."""
    assigned = assign_ids(targets, previous, seed)
    assert assigned.keys() == set(targets)
    assert len(set(assigned.values())) == len(targets)
    assert all(1 <= number <= HIGHEST for number in assigned.values())
    new = {number for target, number in assigned.items() if previous.get(target) != number}
    assert not new & set(previous.values())


def _name(container: str) -> ArrayName:
    return ArrayName(container, ("10.96.0.1", 80))


def test_previous_ids_are_read_from_pairs_of_arrays() -> None:
    """An endpoint may be in one of them only, and the first one that has it counts."""
    arrays: dict[ArrayName, Array] = {
        _name("e"): (A, None, B),
        _name("i"): (1, 2, None),
        _name("f"): (C, A, B),
        _name("j"): (5, 6),
        _name("without IDs"): (D,),
    }
    pairs = [(_name("e"), _name("i")), (_name("f"), _name("j")), (_name("without IDs"), _name("missing"))]
    assert previous_ids(arrays, pairs) == {A: 1, C: 5}
    assert previous_ids(arrays, [(_name("i"), _name("e")), (_name("missing"), _name("i"))]) == {}
