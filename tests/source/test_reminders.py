"""Messages about conditions that last are repeated with growing intervals."""

from itertools import pairwise

from knft.source.reminders import FIRST_SECONDS, MAX_SECONDS, Reminders


def test_message_is_repeated_with_growing_intervals() -> None:
    reminders = Reminders()
    times = [now for now in range(0, 20_000, 10) if reminders.update(["gone"], now)]
    assert times[:5] == [FIRST_SECONDS * factor for factor in (1, 3, 7, 15, 31)]
    assert {later - earlier for earlier, later in pairwise(times[6:])} == {MAX_SECONDS}


def test_message_whose_condition_has_ended_is_not_repeated() -> None:
    reminders = Reminders()
    reminders.update(["gone", "broken"], 0.0)
    assert reminders.update(["broken"], FIRST_SECONDS) == ["broken"]
    assert reminders.update(["gone"], 2 * FIRST_SECONDS) == []
    assert reminders.update(["gone"], 3 * FIRST_SECONDS) == ["gone"]
