"""When failed syncs are logged."""

import logging

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.sync.failure_log import REMINDER_SECONDS, FailureLog

REFUSED = KernelError("refused", "the library's messages")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the levels and lines since the last call, without those for debugging."""
    found = [(each.levelname, each.getMessage()) for each in caplog.records if each.levelno > logging.DEBUG]
    caplog.clear()
    return found


def test_lasting_failure_is_logged_once_and_then_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """The reminders name the reason, and how long syncs have failed for this and other reasons."""
    caplog.set_level(logging.DEBUG, "knft")
    failures = FailureLog()
    for second in range(0, 601, 30):
        failures.failed(Family.IPV4, REFUSED, 1000.0 + second)
    assert lines(caplog) == [
        ("ERROR", "IPv4: sync failed: refused"),
        ("ERROR", "IPv4: syncs still fail after 300 s: refused"),
        ("ERROR", "IPv4: syncs still fail after 600 s: refused"),
    ]
    failures.failed(Family.IPV4, KernelError("timeout"), 1610.0)
    failures.failed(Family.IPV6, REFUSED, 1611.0)
    failures.failed(Family.IPV4, KernelError("timeout"), 1610.0 + REMINDER_SECONDS)
    assert lines(caplog) == [
        ("ERROR", "IPv4: sync failed: timeout"),
        ("ERROR", "IPv6: sync failed: refused"),
        ("ERROR", "IPv4: syncs still fail after 910 s: timeout"),
    ]
    failures.succeeded(Family.IPV4, 1920.0)
    failures.succeeded(Family.IPV4, 1930.0)
    assert lines(caplog) == [("INFO", "IPv4: syncs succeed again after 920 s")]
    failures.failed(Family.IPV4, REFUSED, 1940.0)
    assert lines(caplog) == [("ERROR", "IPv4: sync failed: refused")]


def test_each_failure_is_logged_for_debugging_with_the_library_s_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "knft")
    failures = FailureLog()
    for second in range(2):
        failures.failed(Family.IPV4, REFUSED, float(second))
    assert caplog.messages == ["IPv4: sync failed: refused", "the library's messages"] * 2
