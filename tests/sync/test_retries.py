"""Bisection of refused names, and the times of their retries."""

from collections.abc import Sequence

import pytest

from knft.delta.programmed import MAX_RETRY_DELAY_SECONDS
from knft.errors import KernelError, LibraryDiedError, TableOwnedError
from knft.sync.quarantine import MAX_LIBRARY_DEATHS, Quarantine, RetryState, bisect
from tests.support.kube_objects import port_name

WEB, API = port_name(), port_name(service="api")


class Refusing:
    """Commits batches of names unless they contain a bad one; counts the attempts."""

    def __init__(self, bad: set[str], error: type[KernelError] = KernelError) -> None:
        self._bad = bad
        self._error = error
        self.attempts = 0
        self.committed: list[str] = []

    def commit(self, batch: Sequence[str]) -> None:
        self.attempts += 1
        found = self._bad.intersection(batch)
        if found:
            msg = f"{min(found)} is bad"
            raise self._error(msg)
        self.committed += batch


@pytest.mark.parametrize("bad_names", ["", "a", "h", "de", "abcdefgh"])
@pytest.mark.parametrize("error", [KernelError, LibraryDiedError])
def test_all_names_but_the_bad_ones_are_committed_in_order(bad_names: str, error: type[KernelError]) -> None:
    bad = set(bad_names)
    refusing = Refusing(bad, error)
    refused = bisect("abcdefgh", refusing.commit)
    assert {name: str(reason) for name, reason in refused.items()} == {name: f"{name} is bad" for name in bad}
    assert refusing.committed == sorted(set("abcdefgh") - bad)
    assert refusing.attempts <= 1 + 2 * 3 * len(bad)


def test_nothing_is_committed_without_names() -> None:
    refusing = Refusing(set())
    assert bisect("", refusing.commit) == {}
    assert refusing.attempts == 0


def test_error_that_does_not_depend_on_the_names_is_raised() -> None:
    refusing = Refusing({"a"}, TableOwnedError)
    with pytest.raises(TableOwnedError):
        bisect("abcd", refusing.commit)
    assert refusing.attempts == 1


def test_crashes_of_the_library_are_limited() -> None:
    """Each costs a new worker process; refusals cost little."""
    names = [f"{number:03}" for number in range(200)]
    dying, refusing = Refusing(set(names), LibraryDiedError), Refusing(set(names))
    assert set(bisect(names, dying.commit)) == set(names)
    assert set(bisect(names, refusing.commit)) == set(names)
    assert refusing.attempts == 2 * len(names) - 1
    # Batches that wait when the limit is reached cost one more crash each.
    assert MAX_LIBRARY_DEATHS < dying.attempts < MAX_LIBRARY_DEATHS + 10


def test_delays_double_up_to_the_longest() -> None:
    state = RetryState("first", 100.0, 30.0)
    assert state.retry_at == 130.0
    assert state.after_refusal("again", 140.0) == RetryState("again", 140.0, 60.0)
    assert RetryState("", 0.0, 3000.0).after_refusal("", 0.0).delay == MAX_RETRY_DELAY_SECONDS


def test_quarantine_tells_what_is_due_and_why() -> None:
    quarantine = Quarantine(30.0)
    assert quarantine.seconds_to_next_retry(0.0) is None
    quarantine.add(WEB, "busy", 100.0)
    quarantine.add(API, "bad", 110.0)
    assert WEB in quarantine
    assert port_name(service="other") not in quarantine
    assert quarantine.names() == {WEB, API}
    assert quarantine.reasons() == {WEB: "busy", API: "bad"}
    assert [quarantine.due(now) for now in (129.0, 130.0, 140.0)] == [[], [WEB], [API, WEB]]
    assert [quarantine.seconds_to_next_retry(now) for now in (110.0, 130.0, 200.0)] == [20.0, 0.0, 0.0]


def test_second_refusal_doubles_the_delay_and_a_change_resets_it() -> None:
    quarantine = Quarantine(30.0)
    for now in (0.0, 30.0):
        quarantine.add(WEB, "busy", now)
        quarantine.add(API, "busy", now)
    quarantine.reset_delay({WEB, port_name(service="other")})
    assert (quarantine.due(60.0), quarantine.due(90.0)) == ([WEB], [API, WEB])
    quarantine.release({API, "something else"})
    assert quarantine.names() == {WEB}
