"""SIGTERM stops ``knft run`` at once and leaves the rules in place."""

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import TIMEOUT
from tests.support.processes import worker_processes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[KnftRun]:
    namespace = Namespace.create("stopping")
    with KnftRun(namespace, tmp_path) as started:
        yield started
    namespace.close()


@pytest.mark.parametrize("signal_number", SIGNALS)
def test_idle_daemon_stops_with_a_log_line(daemon: KnftRun, signal_number: signal.Signals) -> None:
    daemon.process.send_signal(signal_number)
    assert daemon.process.wait(TIMEOUT) == 0
    assert daemon.log_text().endswith("knft stopped; its rules stay in the kernel\n")
    assert daemon.has_cluster_ip(1)


@pytest.mark.parametrize("signal_number", SIGNALS)
def test_daemon_stops_during_a_commit(daemon: KnftRun, signal_number: signal.Signals) -> None:
    """The worker may take five minutes to answer; it is killed with the daemon."""
    daemon.wait_until(lambda: len(worker_processes(daemon.process.pid)) == 1)
    (library,) = worker_processes(daemon.process.pid)
    os.kill(library, signal.SIGSTOP)
    daemon.write_service(2)
    # The commands are in the pipe, which the worker does not read.
    daemon.wait_until(lambda: _has_pending_request(library))
    daemon.process.send_signal(signal_number)
    assert daemon.process.wait(TIMEOUT) == 0
    assert daemon.has_cluster_ip(1)
    assert not daemon.has_cluster_ip(2)
    # A zombie has no arguments any more.
    wait_until(lambda: library not in worker_processes(daemon.process.pid), "the libnftables process outlives knft")


def _has_pending_request(library: int) -> bool:
    """Return whether unread data is in any pipe of the worker."""
    for entry in Path(f"/proc/{library}/fd").iterdir():
        if str(entry.readlink()).startswith("pipe:"):
            with entry.open("rb") as pipe:
                waiting = fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0))
                if struct.unpack("i", waiting)[0]:
                    return True
    return False


def test_second_signal_kills_the_daemon(daemon: KnftRun) -> None:
    daemon.wait_until(lambda: len(worker_processes(daemon.process.pid)) == 1)
    (library,) = worker_processes(daemon.process.pid)
    os.kill(library, signal.SIGSTOP)
    daemon.write_service(2)
    daemon.wait_until(lambda: _has_pending_request(library))
    daemon.process.send_signal(signal.SIGTERM)
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(TIMEOUT) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    assert daemon.has_cluster_ip(1)
