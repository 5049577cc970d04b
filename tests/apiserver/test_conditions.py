"""What is said of troubles: each kind, and none of them too often."""

import logging

import pytest

from knft.apiserver.conditions import REMINDER_SECONDS, REPEAT_SECONDS, Conditions
from knft.apiserver.list_watch import RetryDecision, RetryWhen

REFUSED = RetryDecision(RetryWhen.BACK_OFF, "connection refused")
UNTRUSTED = RetryDecision(RetryWhen.BACK_OFF, "the server's certificate is not trusted")
BUSY = [
    RetryDecision(RetryWhen.BACK_OFF, f"it answers 429: request {number}", problem_kind="429") for number in range(9)
]


class Said:
    """Conditions, their clock, and the warnings that came of them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "knft")
        self.now = 0.0
        self.troubles = Conditions(lambda: self.now)
        self._caplog = caplog

    def taken(self) -> list[str]:
        """Return what was said since the last time."""
        lines = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return lines


def test_another_trouble_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    log_check = Said(caplog)
    for decision in (REFUSED, REFUSED, UNTRUSTED, UNTRUSTED, *BUSY):
        log_check.troubles.set_problem("services", decision)
        log_check.troubles.set_problem("nodes", decision)
    assert log_check.taken() == [
        "cannot watch the API server: connection refused; rules stay as they are",
        "still cannot watch the API server after 0 s: the server's certificate is not trusted",
        "still cannot watch the API server after 0 s: it answers 429: request 0",
    ]


def test_a_kind_is_said_once_a_minute_at_the_most(caplog: pytest.LogCaptureFixture) -> None:
    log_check = Said(caplog)
    for second in range(601):
        log_check.now = second
        log_check.troubles.set_problem("services", REFUSED)
        log_check.troubles.set_problem("nodes", UNTRUSTED)
    assert 10 <= len(log_check.taken()) <= 2 * (600 / REPEAT_SECONDS + 1)
    for name in ("services", "nodes"):
        log_check.troubles.clear_problem(name)
    assert log_check.taken() == ["watching the API server again after 600 s"]
    log_check.troubles.set_problem("services", REFUSED)
    assert len(log_check.taken()) == 1


def test_a_trouble_that_lasts_is_said_again_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody finds in a log of days what was said once; and an hour is no flood."""
    log_check, forbidden = (
        Said(caplog),
        RetryDecision(RetryWhen.BACK_OFF, "not allowed to watch nodes", affects_server=False, problem_kind="403"),
    )
    for second in range(0, 3600, 30):
        log_check.now = second
        log_check.troubles.set_problem("nodes", forbidden)
    assert log_check.taken() == ["not allowed to watch nodes; retrying"] * int(3600 / REMINDER_SECONDS)
    log_check.troubles.clear_problem("nodes")
    assert log_check.taken() == ["watching nodes again"]
    for second in range(4000, 4000 + 3600, 30):
        log_check.now = second
        for name in ("services", "endpointslices", "nodes"):
            log_check.troubles.set_problem(name, REFUSED)
    first, *later = log_check.taken()
    assert first == "cannot watch the API server: connection refused; rules stay as they are"
    assert later == [
        f"still cannot watch the API server after {seconds} s: connection refused" for seconds in range(300, 3600, 300)
    ]


def test_one_resource_alone_is_held_to_the_same(caplog: pytest.LogCaptureFixture) -> None:
    log_check = Said(caplog)
    for code in ("403", "400", "403", "400"):
        log_check.troubles.set_problem(
            "nodes", RetryDecision(RetryWhen.BACK_OFF, f"it answers {code}", affects_server=False, problem_kind=code)
        )
    assert log_check.taken() == ["it answers 403; retrying", "it answers 400; retrying"]
    log_check.now += REPEAT_SECONDS
    log_check.troubles.set_problem(
        "nodes", RetryDecision(RetryWhen.BACK_OFF, "it answers 403", affects_server=False, problem_kind="403")
    )
    log_check.troubles.clear_problem("nodes")
    assert log_check.taken() == ["it answers 403; retrying", "watching nodes again"]


def test_troubles_of_ever_new_kinds_are_not_said_without_end(caplog: pytest.LogCaptureFixture) -> None:
    log_check = Said(caplog)
    for number in range(1000):
        log_check.troubles.set_problem("services", RetryDecision(RetryWhen.BACK_OFF, f"number {number}"))
    assert len(log_check.taken()) <= 100
