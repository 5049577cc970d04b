"""ServiceManager: what systemd learns of the daemon's health, with a fake clock, and of a real ``knft run``."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from knft.app.notify_socket import NotifySettings
from knft.app.service_manager import READY_STATUS, STOPPING_STATUS, ServiceManager
from knft.app.shutdown import Shutdown
from knft.families import Family
from knft.serve.proxy_health import ProxyHealth
from tests.app.notify_receiver import NotifyReceiver
from tests.support.fake_timestamps import FakeTimestamps
from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.processes import child_processes
from tests.support.waiting import wait_until

V4, V6 = Family.IPV4, Family.IPV6
SYNC_PERIOD = 30.0
EXTEND, WATCHDOG, READY = "EXTEND_TIMEOUT_USEC=60000000", "WATCHDOG=1", "READY=1"


class _Daemon:
    """A daemon's health, whose syncs the test reports, and its service manager."""

    def __init__(self, receiver: NotifyReceiver, watchdog_seconds: float | None) -> None:
        self.clock = FakeTimestamps()
        self.health = ProxyHealth(SYNC_PERIOD, self.clock)
        self.manager = ServiceManager(NotifySettings(receiver.address, watchdog_seconds))
        self._receiver = receiver

    def notify(self) -> list[str]:
        """Return what the next notification says, nothing if none is sent."""
        self.manager.notify(self.health)
        return [] if self._receiver.is_empty() else self._receiver.receive()

    def synced(self, *families: Family) -> None:
        for family in families:
            self.health.table_left(family)


@pytest.fixture
def receiver() -> Iterator[NotifyReceiver]:
    with NotifyReceiver() as made:
        yield made


@pytest.fixture
def daemon(receiver: NotifyReceiver) -> Iterator[_Daemon]:
    made = _Daemon(receiver, 40.0)
    yield made
    made.manager.stop()


def test_ready_after_the_first_sync_of_each_family(daemon: _Daemon) -> None:
    assert daemon.notify() == [EXTEND, "STATUS=waiting for the Services and endpoints of the cluster"]
    assert daemon.notify() == [EXTEND]
    daemon.health.loop_started(V4)
    daemon.health.loop_started(V6)
    assert daemon.notify() == [EXTEND, "STATUS=waiting for the first sync of IPv4 and IPv6"]
    daemon.synced(V4)
    assert daemon.notify() == [EXTEND, "STATUS=waiting for the first sync of IPv6"]
    daemon.synced(V6)
    assert daemon.notify() == [READY, WATCHDOG, f"STATUS={READY_STATUS}"]
    assert daemon.notify() == [WATCHDOG]


def test_a_lost_notification_is_repeated(tmp_path: Path) -> None:
    """Without READY=1, the service manager would end the start."""
    path = tmp_path / "notify"
    with NotifyReceiver(path) as receiver:
        daemon = _Daemon(receiver, 40.0)
        daemon.synced(V4, V6)
        path.rename(tmp_path / "hidden")
        daemon.manager.notify(daemon.health)
        (tmp_path / "hidden").rename(path)
        assert daemon.notify() == [READY, WATCHDOG, f"STATUS={READY_STATUS}"]
        assert daemon.notify() == [WATCHDOG]
        daemon.manager.stop()


def test_late_change_ends_the_notifications_of_the_watchdog(daemon: _Daemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.synced(V4, V6)
    daemon.notify()
    daemon.health.sync_queued(V6)
    daemon.clock.pass_time(2 * SYNC_PERIOD - 1)
    assert daemon.notify() == [WATCHDOG]
    daemon.clock.pass_time(1)
    with caplog.at_level(logging.ERROR):
        assert daemon.notify() == ["STATUS=a change of IPv6 is not in force"]
        assert daemon.notify() == []
    assert len(caplog.messages) == 1
    assert caplog.messages[0] == (
        "a change of IPv6 is not in force; "
        "meanwhile knft does not report to the service manager, whose watchdog then restarts knft"
    )
    daemon.synced(V6)
    assert daemon.notify() == [WATCHDOG, f"STATUS={READY_STATUS}"]


def test_long_sync_that_makes_progress_is_alive(daemon: _Daemon) -> None:
    daemon.synced(V4, V6)
    daemon.notify()
    daemon.health.sync_queued(V4)
    daemon.health.sync_started(V4)
    daemon.clock.pass_time(2 * SYNC_PERIOD - 1)
    daemon.health.sync_progressed()
    daemon.clock.pass_time(2)
    assert daemon.notify() == [WATCHDOG, "STATUS=a change of IPv4 is not in force"]


def test_first_syncs_that_fail_do_not_extend_the_start_for_ever(
    daemon: _Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.health.loop_started(V4)
    daemon.health.sync_started(V4)
    daemon.health.sync_failed(V4, 1.0, "refused")
    assert daemon.notify()[0] == EXTEND
    daemon.clock.pass_time(2 * SYNC_PERIOD)
    assert daemon.notify() == []
    assert caplog.messages[0].endswith("which ends the start when its time is over")


@pytest.mark.parametrize("watchdog_seconds", [0.04, None])
def test_thread_notifies_until_the_shutdown(receiver: NotifyReceiver, watchdog_seconds: float | None) -> None:
    daemon = _Daemon(receiver, watchdog_seconds)
    shutdown = Shutdown(threading.Event(), 60.0)
    daemon.manager.start(daemon.health, shutdown)
    daemon.synced(V4, V6)
    # Without a watchdog the next notification would be ten seconds later.
    daemon.manager.table_left(V6)
    messages = receiver.receive_until(READY if watchdog_seconds is None else WATCHDOG)
    assert all(EXTEND in message for message in messages[:-1])
    if watchdog_seconds is not None:
        assert [receiver.receive() for _ in range(3)] == [[WATCHDOG]] * 3
    shutdown.stop.set()
    daemon.manager.table_left(V6)
    daemon.manager.stop()
    assert receiver.receive_until("STOPPING=1")[-1] == ["STOPPING=1", f"STATUS={STOPPING_STATUS}"]


@pytest.mark.kernel
def test_knft_run_notifies_and_its_worker_process_cannot(tmp_path: Path) -> None:
    """At a path, because an abstract address belongs to a network namespace."""
    namespace = Namespace.create("notify")
    receiver = NotifyReceiver(tmp_path / "notify")
    variables = [f"NOTIFY_SOCKET={receiver.address}", "WATCHDOG_USEC=30000000"]
    with receiver, KnftRun(namespace, tmp_path, ["env", *variables]) as knft:
        messages = receiver.receive_until(READY)
        assert EXTEND in messages[0]
        assert messages[-1] == [READY, WATCHDOG, f"STATUS={READY_STATUS}"]
        names = {line.partition(b"=")[0] for pid in child_processes(knft.process.pid) for line in _environment(pid)}
        assert b"PATH" in names
        assert not names & {b"NOTIFY_SOCKET", b"WATCHDOG_USEC"}
        knft.process.terminate()
        receiver.receive_until("STOPPING=1")
        wait_until(lambda: knft.process.poll() == 0, "knft has not stopped")
    namespace.close()


def _environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
