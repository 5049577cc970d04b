"""ForeignChanges: changes of other programs are checked at once, and repeated changes with growing delays."""

import itertools

import pytest

from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.foreign_changes import (
    CHECK_POLL_SECONDS,
    FIRST_DELAY_SECONDS,
    MAX_DELAY_SECONDS,
    REPETITION_SECONDS,
    UNDELAYED_REPETITIONS,
    ForeignChanges,
)

NFT, KNFT = "nft (pid 7)", "knft (pid 8)"
HOUR = 3600.0


def _change(process: str = NFT, name: str = "services") -> ForeignChange:
    return ForeignChange(Family.IPV4, frozenset({name}), process=process)


def _check(changes: ForeignChanges, now: float) -> None:
    assert changes.release(now)
    assert changes.begin_check() is not None
    changes.finish_check(now)


def _checks_against_a_rival(process: str, hours: float, reaction: float = 0.05) -> list[float]:
    """Return the times of the checks if another program changes the table right after each."""
    changes, times, now = ForeignChanges(), list[float](), 0.0
    while now < hours * HOUR:
        changes.add(_change(process), now)
        now += changes.seconds_to_release(now)
        _check(changes, now)
        times.append(now)
        now += reaction
    return times


def test_first_change_is_checked_at_once() -> None:
    changes = ForeignChanges()
    assert changes.add(_change(), 5.0) == 0.0
    assert changes.seconds_to_release(5.0) == 0.0
    _check(changes, 5.0)
    assert changes.seconds_to_release(5.0) == float("inf")
    assert changes.begin_check() is None
    assert changes.delay(5.0) == 0.0


def test_delays_double_up_to_the_longest() -> None:
    times = _checks_against_a_rival(NFT, 0.05, reaction=0.0)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps[: UNDELAYED_REPETITIONS + 6] == [0.0] * UNDELAYED_REPETITIONS + [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(gaps[UNDELAYED_REPETITIONS + 6 :]) == {MAX_DELAY_SECONDS}


def test_knft_processes_are_checked_once_an_hour_in_the_end() -> None:
    """The rules of the other process serve traffic, too."""
    assert len(_checks_against_a_rival(KNFT, 2.0)) < 20
    assert len(_checks_against_a_rival(NFT, 2.0)) > 200


def test_two_processes_that_both_delay_their_checks_do_not_keep_each_other_busy() -> None:
    """Each check of one is a change for the other."""
    instances = {KNFT: ForeignChanges(), "knft (pid 9)": ForeignChanges()}
    (first, second), now, checks = instances, 0.0, 0
    instances[first].add(_change(second), now)
    while now < 2 * HOUR:
        name = min(instances, key=lambda each: instances[each].seconds_to_release(now))
        now += instances[name].seconds_to_release(now)
        _check(instances[name], now)
        checks += 1
        other = second if name is first else first
        now += 0.05
        instances[other].add(_change(name), now)
    assert checks < 40


def test_change_after_a_quiet_time_is_checked_at_once() -> None:
    changes, now = ForeignChanges(), 0.0
    for _ in range(UNDELAYED_REPETITIONS + 3):
        changes.add(_change(), now)
        now += changes.seconds_to_release(now)
        _check(changes, now)
    assert changes.delay(now) == 4 * FIRST_DELAY_SECONDS / 2
    now += 11.0
    assert changes.delay(now) == 0.0
    assert changes.add(_change(), now) == 0.0
    assert changes.release(now)


def test_slow_periodic_changes_are_never_delayed() -> None:
    changes = ForeignChanges()
    for now in range(0, 1200, 12):
        assert changes.add(_change(), float(now)) == 0.0
        _check(changes, float(now))


def test_delay_is_reported_once_with_the_change_that_begins_it() -> None:
    changes = ForeignChanges()
    for _ in range(UNDELAYED_REPETITIONS + 1):
        changes.add(_change(), 0.0)
        _check(changes, 0.0)
    assert changes.add(_change(), 0.25) == 0.75
    assert changes.add(_change(), 0.5) == 0.0
    assert not changes.release(0.75)
    assert changes.release(1.0)


def test_changes_before_a_check_are_checked_together() -> None:
    changes = ForeignChanges()
    changes.add(_change(NFT, "a"), 0.0)
    assert changes.release(0.0)
    assert changes.add(_change(KNFT, "b"), 0.0) == 0.0
    assert str(changes.begin_check()) == "knft (pid 8), nft (pid 7) changed the table: a, b"
    assert changes.seconds_to_release(0.0) == float("inf")


def test_change_during_a_check_causes_another() -> None:
    """The check may have read the table before the change."""
    changes = ForeignChanges()
    changes.add(_change(), 0.0)
    changes.release(0.0)
    changes.begin_check()
    changes.add(_change(), 1.0)
    assert not changes.release(1.0)
    changes.finish_check(2.0)
    assert changes.release(2.0)


def test_repeated_change_during_a_check_waits_from_its_end() -> None:
    changes = ForeignChanges()
    for _ in range(UNDELAYED_REPETITIONS + 1):
        changes.add(_change(), 0.0)
        _check(changes, 0.0)
    changes.add(_change(), 0.0)
    assert changes.release(1.0)
    assert changes.begin_check() is not None
    assert changes.add(_change(), 1.5) == 2.0
    assert changes.seconds_to_release(1.5) == CHECK_POLL_SECONDS
    changes.finish_check(3.0)
    assert changes.seconds_to_release(3.0) == 2.0


def test_change_at_the_end_of_the_quiet_time_is_no_repetition() -> None:
    changes = ForeignChanges()
    for _ in range(UNDELAYED_REPETITIONS + 2):
        changes.add(_change(), 0.0)
        _check(changes, changes.seconds_to_release(0.0))
    end = 1.0 + REPETITION_SECONDS
    assert (changes.delay(end - 0.1), changes.delay(end)) == (1.0, 0.0)
    assert changes.add(_change(), end) == 0.0
    assert changes.delay(end) == 0.0


def test_sync_without_released_changes_is_no_check() -> None:
    """It may have begun before the changes were released."""
    changes = ForeignChanges()
    assert changes.begin_check() is None
    changes.add(_change(), 0.0)
    changes.release(0.0)
    changes.finish_check(1.0)
    assert changes.begin_check() is not None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (ForeignChange(Family.IPV4), "an unknown process changed the table"),
        (ForeignChange(Family.IPV4, overrun=True), "an unknown process may have changed the table"),
        (
            ForeignChange(Family.IPV4, frozenset("abc"), frozenset("defg"), process=NFT),
            "nft (pid 7) changed the table: a, b, c, d, e and more",
        ),
        (ForeignChange(Family.IPV4, frozenset("abcde"), process=NFT), "nft (pid 7) changed the table: a, b, c, d, e"),
    ],
)
def test_summary_names_processes_and_objects(change: ForeignChange, text: str) -> None:
    changes = ForeignChanges()
    changes.add(change, 0.0)
    changes.release(0.0)
    assert str(changes.begin_check()) == text
