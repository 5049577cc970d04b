"""SIGTERM ends ``knft run`` at once, whatever it is doing, and leaves the rules in place."""

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.following import Daemon
from tests.packets.running import until, workers_of
from tests.support.lab.logged_process import HANG
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    namespace = Namespace.create("stopping")
    with Daemon(namespace, tmp_path) as started:
        yield started
    namespace.close()


@pytest.mark.parametrize("how", SIGNALS)
def test_an_idle_one_ends_and_says_so(daemon: Daemon, how: signal.Signals) -> None:
    daemon.process.send_signal(how)
    assert daemon.process.wait(HANG) == 0
    assert daemon.said().endswith("stopped; the rules stay in place\n")
    assert daemon.serves(1)


@pytest.mark.parametrize("how", SIGNALS)
def test_one_that_waits_for_a_commit_does_not_wait_on(daemon: Daemon, how: signal.Signals) -> None:
    """libnftables answers after five minutes at the latest, if ever; its process goes with the daemon."""
    daemon.until(lambda: len(workers_of(daemon.process.pid)) == 1)
    (library,) = workers_of(daemon.process.pid)
    os.kill(library, signal.SIGSTOP)
    daemon.write(2)
    # Its commands wait in the pipe that it does not read.
    daemon.until(lambda: _is_asked(library))
    daemon.process.send_signal(how)
    assert daemon.process.wait(HANG) == 0
    assert daemon.serves(1)
    assert not daemon.serves(2)
    # One that nobody has waited for yet has no arguments any more.
    until(lambda: library not in workers_of(daemon.process.pid), "the process of libnftables outlives knft")


def _is_asked(library: int) -> bool:
    """Whether something waits in any pipe of the library's."""
    for entry in Path(f"/proc/{library}/fd").iterdir():
        if str(entry.readlink()).startswith("pipe:"):
            with entry.open("rb") as pipe:
                waiting = fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0))
                if struct.unpack("i", waiting)[0]:
                    return True
    return False


def test_a_second_signal_ends_it_where_it_stands(daemon: Daemon) -> None:
    daemon.until(lambda: len(workers_of(daemon.process.pid)) == 1)
    (library,) = workers_of(daemon.process.pid)
    os.kill(library, signal.SIGSTOP)
    daemon.write(2)
    daemon.until(lambda: _is_asked(library))
    daemon.process.send_signal(signal.SIGTERM)
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(HANG) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    assert daemon.serves(1)
