"""A bug in the work before or after a sync neither ends the Daemon's loop nor loses a retry or a check of the table."""

import logging

import pytest

import knft.sync.daemon
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.render import wide
from knft.sync.daemon import Daemon
from knft.sync.foreign_changes import ForeignChanges
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.old_kernel import refuse_as_before_6_2

CHANGE = ForeignChange(Family.IPV4, frozenset({"services"}), process="nft (pid 7)")


@pytest.fixture
def harness() -> MemoryHarness:
    return MemoryHarness()


@pytest.fixture
def daemon(harness: MemoryHarness) -> Daemon:
    return Daemon((harness.proxier,), harness.dispatcher)


def _fail(*_: object) -> None:
    msg = "a mistake"
    raise ZeroDivisionError(msg)


@pytest.mark.parametrize("place", ["begin_check", "finish_check", "freeze_and_trim"])
def test_bug_before_or_after_a_sync_does_not_fail_the_sync(
    harness: MemoryHarness,
    daemon: Daemon,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    monkeypatch.setattr(knft.sync.daemon if place == "freeze_and_trim" else ForeignChanges, place, _fail)
    harness.apply(service("web"), *slices("web", [1]))

    assert daemon.sync()

    assert harness.differences() == []
    assert {message.partition(" failed")[2] for message in caplog.messages} == {" unexpectedly; please report this"}
    monkeypatch.undo()
    caplog.clear()
    assert daemon.sync()
    assert caplog.messages == []


@pytest.mark.parametrize("message", ["reading the table back", "full sync of"])
def test_bug_in_a_log_filter_skips_no_check_and_no_retry(
    harness: MemoryHarness,
    daemon: Daemon,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
) -> None:
    def fail(record: logging.LogRecord) -> bool:
        if message in record.getMessage():
            _fail()
        return True

    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
    harness.apply(service("wide"), *slices("wide", [1]))
    daemon.sync()
    harness.table.chains.pop("services")
    daemon.foreign_changes.record(CHANGE)
    harness.table.on_commit = refuse_as_before_6_2
    harness.delete("Service", "wide")  # Its emptied chains are deleted a second later.
    requested: list[float] = []
    monkeypatch.setattr(daemon._runner, "request_within", requested.append)
    caplog.set_level(logging.INFO, "knft")
    monkeypatch.setattr(logging.getLogger("knft"), "filters", [fail])

    assert daemon.sync()

    assert "services" in harness.table.chains
    assert len(requested) == 1
