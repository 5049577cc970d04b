"""When problems of the API server are logged."""

import logging

import pytest

from knft.apiserver.list_watch import RetryDecision, RetryWhen
from knft.apiserver.watch_problems import (
    MAX_OUTAGES,
    MAX_PROBLEM_LENGTH,
    REMINDER_SECONDS,
    REPEAT_SECONDS,
    WatchProblems,
)
from knft.control.messages import ServerOutage

REFUSED = RetryDecision(RetryWhen.BACK_OFF, "connection refused")
UNTRUSTED = RetryDecision(RetryWhen.BACK_OFF, "the server's certificate is not trusted")
BUSY = [
    RetryDecision(RetryWhen.BACK_OFF, f"the server answered 429: request {number}", problem_kind="429")
    for number in range(9)
]


class LogCheck:
    """Conditions with a fake clock, and the lines that they log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "knft")
        self.now = 0.0
        self.problems = WatchProblems(lambda: self.now, lambda: self.now)
        self._caplog = caplog

    def new_lines(self) -> list[str]:
        """Return the lines logged since the last call."""
        lines = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return lines


def test_each_kind_of_problem_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    for decision in (REFUSED, REFUSED, UNTRUSTED, UNTRUSTED, *BUSY):
        log_check.problems.set_problem("services", decision)
        log_check.problems.set_problem("nodes", decision)
    assert log_check.new_lines() == [
        "cannot watch the API server: connection refused; rules stay as they are",
        "still cannot watch the API server after 0 s: the server's certificate is not trusted",
        "still cannot watch the API server after 0 s: the server answered 429: request 0",
    ]


def test_a_kind_is_logged_at_most_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    for second in range(601):
        log_check.now = second
        log_check.problems.set_problem("services", REFUSED)
        log_check.problems.set_problem("nodes", UNTRUSTED)
    assert 10 <= len(log_check.new_lines()) <= 2 * (600 / REPEAT_SECONDS + 1)
    for name in ("services", "nodes"):
        log_check.problems.clear_problem(name)
    assert log_check.new_lines() == ["watching the API server again after 600 s"]
    log_check.problems.set_problem("services", REFUSED)
    assert len(log_check.new_lines()) == 1


def test_lasting_problem_is_logged_again_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """The line is repeated, because the first one is far back in a long log."""
    log_check, forbidden = (
        LogCheck(caplog),
        RetryDecision(RetryWhen.BACK_OFF, "not allowed to watch nodes", affects_server=False, problem_kind="403"),
    )
    for second in range(0, 3600, 30):
        log_check.now = second
        log_check.problems.set_problem("nodes", forbidden)
    assert log_check.new_lines() == ["not allowed to watch nodes; retrying"] * int(3600 / REMINDER_SECONDS)
    log_check.problems.clear_problem("nodes")
    assert log_check.new_lines() == ["watching nodes again"]
    for second in range(4000, 4000 + 3600, 30):
        log_check.now = second
        for name in ("services", "endpointslices", "nodes"):
            log_check.problems.set_problem(name, REFUSED)
    first, *later = log_check.new_lines()
    assert first == "cannot watch the API server: connection refused; rules stay as they are"
    assert later == [
        f"still cannot watch the API server after {seconds} s: connection refused" for seconds in range(300, 3600, 300)
    ]


def test_log_rate_is_limited_per_resource(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    for code in ("403", "400", "403", "400"):
        log_check.problems.set_problem(
            "nodes",
            RetryDecision(RetryWhen.BACK_OFF, f"the server answered {code}", affects_server=False, problem_kind=code),
        )
    assert log_check.new_lines() == ["the server answered 403; retrying", "the server answered 400; retrying"]
    log_check.now += REPEAT_SECONDS
    log_check.problems.set_problem(
        "nodes", RetryDecision(RetryWhen.BACK_OFF, "the server answered 403", affects_server=False, problem_kind="403")
    )
    log_check.problems.clear_problem("nodes")
    assert log_check.new_lines() == ["the server answered 403; retrying", "watching nodes again"]


def test_duration_is_that_of_all_problems_of_a_resource(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    for decision in (REFUSED, UNTRUSTED):
        log_check.problems.set_problem("services", decision)
        log_check.now += 5
    log_check.problems.set_problem("nodes", REFUSED)
    log_check.now += 1
    assert log_check.problems.problem_seconds() == {"services": 11, "nodes": 1}
    log_check.problems.clear_problem("services")
    assert log_check.problems.problem_seconds() == {"nodes": 1}


def test_number_of_logged_kinds_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    for number in range(1000):
        log_check.problems.set_problem("services", RetryDecision(RetryWhen.BACK_OFF, f"number {number}"))
    assert len(log_check.new_lines()) <= 100


def test_no_recovery_is_logged_while_every_watch_is_forbidden(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    names = ("services", "nodes")
    for name in names:
        log_check.problems.set_problem(name, REFUSED)
    log_check.now = 4
    log_check.new_lines()
    for name in names:
        text = f"not allowed to watch {name}"
        forbidden = RetryDecision(RetryWhen.BACK_OFF, text, affects_server=False, problem_kind="403")
        log_check.problems.set_problem(name, forbidden)
    assert log_check.new_lines() == [f"not allowed to watch {name}; retrying" for name in names]
    log_check.problems.clear_problem("nodes")
    assert log_check.new_lines() == ["watching nodes again", "watching the API server again after 4 s"]


def test_outages_are_kept_with_their_first_reason(caplog: pytest.LogCaptureFixture) -> None:
    """One for the server as a whole, and one for each resource with a problem of its own."""
    log_check = LogCheck(caplog)
    problems = log_check.problems
    forbidden = RetryDecision(RetryWhen.BACK_OFF, "not allowed", affects_server=False, problem_kind="403")
    for name, decision in (("services", REFUSED), ("nodes", REFUSED), ("nodes", UNTRUSTED)):
        log_check.now += 1
        problems.set_problem(name, decision)
    assert problems.outages() == (ServerOutage("", "connection refused", 1),)
    log_check.now = 10
    problems.set_problem("nodes", forbidden)
    problems.clear_problem("services")
    assert problems.outages() == (
        ServerOutage("", "connection refused", 1, 10),
        ServerOutage("nodes", "not allowed", 10),
    )
    log_check.now = 20
    problems.clear_problem("nodes")
    assert problems.outages() == (
        ServerOutage("", "connection refused", 1, 10),
        ServerOutage("nodes", "not allowed", 10, 20),
    )
    problems.clear_problem("nodes")
    assert len(problems.outages()) == 2


def test_outage_of_a_resource_ends_when_the_server_has_one(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    forbidden = RetryDecision(RetryWhen.BACK_OFF, "not allowed", affects_server=False, problem_kind="403")
    for decision in (forbidden, REFUSED):
        log_check.now += 1
        log_check.problems.set_problem("nodes", decision)
    assert log_check.problems.outages() == (
        ServerOutage("nodes", "not allowed", 1, 2),
        ServerOutage("", "connection refused", 2),
    )


def test_number_of_outages_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    log_check = LogCheck(caplog)
    for second in range(3 * MAX_OUTAGES):
        log_check.now = second
        log_check.problems.set_problem("services", RetryDecision(RetryWhen.BACK_OFF, "x" * 10_000))
        log_check.problems.clear_problem("services")
    outages = log_check.problems.outages()
    assert [each.began for each in outages] == list(range(2 * MAX_OUTAGES, 3 * MAX_OUTAGES))
    assert {len(each.problem) for each in outages} == {MAX_PROBLEM_LENGTH}
