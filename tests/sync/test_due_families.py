"""Which families a run of the sync loop syncs."""

import pytest

from knft.families import Family
from knft.sync.due_families import DueFamilies

V4, V6 = Family.IPV4, Family.IPV6
BOTH = frozenset(Family)


@pytest.fixture
def due() -> DueFamilies:
    """Return families that were synced at 0, and are due again after 100 s."""
    made = DueFamilies(list(Family), 100.0)
    assert made.take(0.0) == BOTH
    for family in Family:
        made.record_sync(family, 0.0, is_settled=True)
    return made


def test_first_sync_is_of_all_families() -> None:
    """Although only one is requested, and the machine has just started."""
    made = DueFamilies(list(Family), 100.0)
    made.request([V4])
    assert made.take(1.0) == BOTH


def test_requested_family_is_due_once(due: DueFamilies) -> None:
    due.request([V4])
    assert due.take(1.0) == {V4}
    due.record_sync(V4, 1.0, is_settled=True)
    due.request([V6])
    assert due.take(2.0) == {V6}


def test_all_families_are_due_if_the_loop_runs_without_a_request(due: DueFamilies) -> None:
    assert due.take(1.0) == BOTH


def test_request_during_a_sync_is_for_the_next_one(due: DueFamilies) -> None:
    due.request([V4])
    assert due.take(1.0) == {V4}
    due.request([V4, V6])
    due.record_sync(V4, 2.0, is_settled=True)
    assert due.take(3.0) == BOTH


def test_family_is_due_until_a_sync_settles_it(due: DueFamilies) -> None:
    """Its last sync failed, or left something to a later one."""
    due.request([V6])
    due.take(1.0)
    due.record_sync(V6, 1.0, is_settled=False)
    due.request([V4])
    assert due.take(2.0) == BOTH
    for family in Family:
        due.record_sync(family, 2.0, is_settled=True)
    due.request([V4])
    assert due.take(3.0) == {V4}


def test_family_is_due_if_its_last_sync_is_too_long_ago(due: DueFamilies) -> None:
    due.request([V4])
    due.take(60.0)
    due.record_sync(V4, 60.0, is_settled=True)
    due.request([V4])
    assert due.take(100.0) == BOTH
