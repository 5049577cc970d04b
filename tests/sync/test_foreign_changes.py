"""ForeignChanges: changes of other programs are checked at once, and repeated changes with growing delays."""

import itertools
from collections.abc import Iterator

import pytest

from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.foreign_changes import (
    CHECK_POLL_SECONDS,
    FIRST_DELAY_SECONDS,
    MAX_DELAY_SECONDS,
    NEW_CHANGE_DELAY_SECONDS,
    REPETITION_SECONDS,
    UNDELAYED_REPETITIONS,
    ForeignChanges,
)

NFT, KNFT = "nft (pid 7)", "knft (pid 8)"
HOUR = 3600.0


def _change(process: str = NFT, name: str = "services") -> ForeignChange:
    return ForeignChange(Family.IPV4, frozenset({name}), process=process)


def _check(changes: ForeignChanges, now: float) -> None:
    assert changes.is_due(now)
    assert changes.begin_check(now) is not None
    changes.finish_check(now)


def _seconds_to_check(changes: ForeignChanges, now: float) -> float:
    return 0.0 if changes.is_due(now) else changes.seconds_to_poll(now)


def _checks_against_a_rival(
    rival: Iterator[ForeignChange],
    seconds: float = 200.0,
    reaction: float = 0.05,
    changes: ForeignChanges | None = None,
) -> list[float]:
    """Return the times of the checks if another program changes the table right after each."""
    changes, times, now = changes or ForeignChanges(), list[float](), 0.0
    while now < seconds:
        changes.add(next(rival), now)
        now += _seconds_to_check(changes, now)
        _check(changes, now)
        times.append(now)
        now += reaction
    return times


def test_first_change_is_checked_at_once() -> None:
    changes = ForeignChanges()
    assert changes.add(_change(), 5.0) == 0.0
    assert changes.is_due(5.0)
    _check(changes, 5.0)
    assert changes.seconds_to_poll(5.0) == float("inf")
    assert changes.begin_check(5.0) is None
    assert changes.delay(5.0) == 0.0


@pytest.mark.parametrize("process", [NFT, KNFT])
def test_delays_double_up_to_the_longest(process: str) -> None:
    times = _checks_against_a_rival(itertools.repeat(_change(process)), reaction=0.0)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps[: UNDELAYED_REPETITIONS + 6] == [0.0] * UNDELAYED_REPETITIONS + [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(gaps[UNDELAYED_REPETITIONS + 6 :]) == {MAX_DELAY_SECONDS}


def test_delays_stay_long_if_each_change_has_another_process_id() -> None:
    """A script that runs nft again and again."""
    times = _checks_against_a_rival(_change(f"nft (pid {number})") for number in itertools.count())
    assert times[-1] - times[-2] > MAX_DELAY_SECONDS - 1


@pytest.fixture
def contested() -> tuple[ForeignChanges, float]:
    """Return the state, and the end of the last check, after another knft has changed the table many times."""
    changes = ForeignChanges()
    return changes, _checks_against_a_rival(itertools.repeat(_change(KNFT)), changes=changes)[-1]


NEW_CHANGES = {
    "another program": _change(NFT),
    "other objects": _change(KNFT, "their-input"),
    "unknown objects": ForeignChange(Family.IPV4, process=KNFT, overrun=True),
}


@pytest.mark.parametrize("change", NEW_CHANGES.values(), ids=NEW_CHANGES)
def test_new_change_among_repeated_ones_is_checked_soon(
    contested: tuple[ForeignChanges, float], change: ForeignChange
) -> None:
    """Before, a base chain with policy drop waited as long as the repeated changes: up to an hour."""
    changes, checked = contested
    assert changes.add(_change(KNFT), checked + 1) == MAX_DELAY_SECONDS - 1
    assert changes.add(change, checked + 2) == NEW_CHANGE_DELAY_SECONDS - 2
    assert changes.add(change, checked + 3) == 0.0
    assert changes.delay(checked + 3) == NEW_CHANGE_DELAY_SECONDS
    assert changes.seconds_to_poll(checked + 3) == NEW_CHANGE_DELAY_SECONDS - 3
    assert not changes.is_due(checked + NEW_CHANGE_DELAY_SECONDS - 0.1)
    _check(changes, checked + NEW_CHANGE_DELAY_SECONDS)


def test_new_change_is_checked_at_once_if_the_last_check_is_old(contested: tuple[ForeignChanges, float]) -> None:
    changes, checked = contested
    changes.add(_change(KNFT), checked + 1)
    assert changes.add(_change(NFT), checked + 20) == 0.0
    _check(changes, checked + 20)


def test_new_change_does_not_shorten_later_delays(contested: tuple[ForeignChanges, float]) -> None:
    changes, checked = contested
    changes.add(_change(KNFT), checked + 1)
    changes.add(_change(NFT), checked + 6)
    _check(changes, checked + 6)
    assert changes.add(_change(KNFT), checked + 7) == MAX_DELAY_SECONDS - 1
    assert changes.add(_change(NFT), checked + 8) == 0.0


def test_program_that_changes_other_chains_each_time_causes_few_checks() -> None:
    rival = (_change(name=f"chain-{number}") for number in itertools.count())
    assert len(_checks_against_a_rival(rival, HOUR)) < HOUR / NEW_CHANGE_DELAY_SECONDS + 10


def test_two_processes_that_both_delay_their_checks_do_not_keep_each_other_busy() -> None:
    """Each check of one is a change for the other."""
    instances = {KNFT: ForeignChanges(), "knft (pid 9)": ForeignChanges()}
    (first, second), now, checks = instances, 0.0, 0
    instances[first].add(_change(second), now)
    while now < HOUR:
        name = min(instances, key=lambda each: _seconds_to_check(instances[each], now))
        now += _seconds_to_check(instances[name], now)
        _check(instances[name], now)
        checks += 1
        other = second if name is first else first
        now += 0.05
        instances[other].add(_change(name), now)
    assert checks < 2 * HOUR / MAX_DELAY_SECONDS + 20


def test_change_after_a_quiet_time_is_checked_at_once() -> None:
    changes, now = ForeignChanges(), 0.0
    for _ in range(UNDELAYED_REPETITIONS + 3):
        changes.add(_change(), now)
        now += _seconds_to_check(changes, now)
        _check(changes, now)
    assert changes.delay(now) == 4 * FIRST_DELAY_SECONDS / 2
    now += 11.0
    assert changes.delay(now) == 0.0
    assert changes.add(_change(), now) == 0.0
    assert changes.is_due(now)


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
    assert changes.begin_check(0.75) is None
    assert changes.begin_check(1.0) is not None


def test_changes_before_a_check_are_checked_together() -> None:
    changes = ForeignChanges()
    changes.add(_change(NFT, "a"), 0.0)
    assert changes.add(_change(KNFT, "b"), 0.0) == 0.0
    assert str(changes.begin_check(0.0)) == "knft (pid 8), nft (pid 7) changed the table: a, b"
    assert changes.seconds_to_poll(0.0) == float("inf")


def test_change_during_a_check_causes_another() -> None:
    """The check may have read the table before the change."""
    changes = ForeignChanges()
    changes.add(_change(), 0.0)
    changes.begin_check(0.0)
    changes.add(_change(), 1.0)
    assert not changes.is_due(1.0)
    changes.finish_check(2.0)
    assert changes.is_due(2.0)


def test_repeated_change_during_a_check_waits_from_its_end() -> None:
    changes = ForeignChanges()
    for _ in range(UNDELAYED_REPETITIONS + 1):
        changes.add(_change(), 0.0)
        _check(changes, 0.0)
    changes.add(_change(), 0.0)
    assert changes.seconds_to_poll(1.0) == CHECK_POLL_SECONDS
    assert changes.begin_check(1.0) is not None
    assert changes.add(_change(), 1.5) == 2.0
    assert changes.seconds_to_poll(1.5) == CHECK_POLL_SECONDS
    changes.finish_check(3.0)
    assert changes.seconds_to_poll(3.0) == 2.0


def test_change_at_the_end_of_the_quiet_time_is_no_repetition() -> None:
    changes = ForeignChanges()
    for _ in range(UNDELAYED_REPETITIONS + 2):
        changes.add(_change(), 0.0)
        _check(changes, _seconds_to_check(changes, 0.0))
    end = 1.0 + REPETITION_SECONDS
    assert (changes.delay(end - 0.1), changes.delay(end)) == (1.0, 0.0)
    assert changes.add(_change(), end) == 0.0
    assert changes.delay(end) == 0.0


def test_sync_before_the_changes_are_due_is_no_check() -> None:
    changes = ForeignChanges()
    assert changes.begin_check(0.0) is None
    changes.add(_change(), 0.0)
    changes.finish_check(1.0)
    assert changes.begin_check(1.0) is not None


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
    assert str(changes.begin_check(0.0)) == text
