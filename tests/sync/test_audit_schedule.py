"""When audits begin: once an hour, sooner after one that compared nothing, and on request."""

import threading
from collections.abc import Callable

import pytest

from knft.sync.audit_schedule import AUDIT_RETRY_SECONDS, AUDIT_SECONDS, PAUSE_SECONDS, AuditSchedule
from tests.support.waiting import TIMEOUT, wait_until


class Waits(threading.Event):
    """An event that records the times of waits instead of waiting."""

    def __init__(self, seconds: list[float | None]) -> None:
        super().__init__()
        self._seconds = seconds

    def wait(self, timeout: float | None = None) -> bool:
        self._seconds.append(timeout)
        return self.is_set()


def waits_of(audit: Callable[[], bool], count: int, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Return the times that the schedule waits before each of ``count`` audits, and after each."""
    waits: list[float | None] = []
    stop, audits = Waits(waits), 0

    def counted_audit() -> bool:
        nonlocal audits
        audits += 1
        if audits == count:
            stop.set()
        return audit()

    schedule = AuditSchedule(counted_audit)
    monkeypatch.setattr(schedule, "_wake", Waits(waits))
    schedule.run(stop)
    return waits


def test_audit_that_compared_nothing_is_repeated_with_growing_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter((False, True, *[False] * 6, True))
    waits = waits_of(lambda: next(answers), 9, monkeypatch)
    growing = [120.0, 240.0, 480.0, 960.0, 1920.0, AUDIT_SECONDS]
    assert waits[::2] == [AUDIT_SECONDS, AUDIT_RETRY_SECONDS, AUDIT_SECONDS, *growing]
    assert set(waits[1::2]) == {PAUSE_SECONDS}


def test_unexpected_error_does_not_end_the_audits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert waits_of(lambda: bool(1 / 0), 2, monkeypatch)[::2] == [AUDIT_SECONDS] * 2
    assert caplog.messages == ["the audit failed unexpectedly; please report this"] * 2


def test_audit_that_fails_unexpectedly_has_ended() -> None:
    """Otherwise ``knft status --audit`` waits for it."""
    stop = threading.Event()

    def audit() -> bool:
        stop.set()
        return bool(1 / 0)

    schedule = AuditSchedule(audit)
    requested = schedule.request()
    schedule.run(stop)
    assert schedule.ended == requested


def test_requests_during_an_audit_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is not answered by an audit that began before it, and two audits never run at the same time."""
    monkeypatch.setattr("knft.sync.audit_schedule.PAUSE_SECONDS", 0.0)
    begun, may_end, stop = threading.Event(), threading.Event(), threading.Event()
    running = 0
    most_running = 0

    def audit() -> bool:
        nonlocal running, most_running
        running += 1
        most_running = max(running, most_running)
        begun.set()
        may_end.wait(TIMEOUT)
        running -= 1
        return True

    schedule = AuditSchedule(audit)
    thread = threading.Thread(target=schedule.run, args=[stop])
    thread.start()
    assert schedule.request() == 1
    assert begun.wait(TIMEOUT)
    assert [schedule.request(), schedule.request(), schedule.ended] == [2, 2, 0]
    may_end.set()
    wait_until(lambda: schedule.ended == 2, "the second audit ends")
    stop.set()
    schedule.stop()
    thread.join(TIMEOUT)
    assert (thread.is_alive(), schedule.ended, most_running) == (False, 2, 1)
