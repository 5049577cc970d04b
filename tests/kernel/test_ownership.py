"""Where library and kernel can do it (1.1.0, 6.9), nobody else can touch the table; elsewhere knft works without.

Which of the two is shown depends on the library: ``make test`` has Debian 12's 1.0.6, ``make test-trixie`` 1.1.3.
"""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from knft.config import Config
from knft.errors import KernelError
from knft.kernel.ownership import Ownership
from knft.kernel.process import LibraryProcess
from knft.kernel.tables import flags_of
from knft.nft.objects import Family
from knft.render.names import TABLE
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon
from tests.kernel.harness import KernelHarness
from tests.kernel.owning import CAN_OWN
from tests.packets.node import knft
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

HANG = 30.0
FAMILIES: tuple[Family, ...] = ("ip", "ip6")


@pytest.fixture
def library(namespace: Namespace) -> Iterator[LibraryProcess]:
    del namespace  # Its fixture has put this thread into it.
    with LibraryProcess() as started:
        yield started


@pytest.fixture
def daemon(library: LibraryProcess) -> Daemon:
    started = live_daemon(Config("node-1"), library)
    assert started.sync()
    return started


def _flags() -> set[frozenset[str]]:
    return {flags_of(family, TABLE) for family in FAMILIES}


def _owned() -> set[frozenset[str]]:
    return {frozenset({"owner", "persist"})} if CAN_OWN else {frozenset()}


def test_it_is_known_whether_tables_can_be_owned(library: LibraryProcess) -> None:
    assert Ownership(library, TABLE, FAMILIES).possible is CAN_OWN
    assert "knft-probe" not in library.run("list tables")


def test_tables_are_owned_where_they_can_be(daemon: Daemon) -> None:
    assert daemon.sync()
    assert _flags() == _owned()


def test_a_flush_by_another_program_touches_them_only_where_they_are_not_owned(
    daemon: Daemon, namespace: Namespace
) -> None:
    del daemon  # It has made the tables.
    before = namespace.run(["nft", "list", "ruleset"]).stdout
    namespace.run(["nft", "flush", "ruleset"])
    assert namespace.run(["nft", "list", "ruleset"]).stdout == (before if CAN_OWN else "")


def test_a_second_knft_and_a_cleanup_get_a_clear_error_where_they_are_owned(
    daemon: Daemon, namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere the cleanup is carried out, as it cannot know of the other."""
    cleanup = knft(namespace, "cleanup", check=False)
    if not CAN_OWN:
        assert cleanup.returncode == 0
        return
    words = "the table ip knft belongs to another process, which alone may change it: stop the other knft first"
    assert (cleanup.returncode, cleanup.stderr) == (1, f"knft: {words}\n")
    with LibraryProcess() as library:
        second = live_daemon(Config("node-1", service_cidrs=("10.96.0.0/16",)), library)
        assert not second.sync()
    assert f"IPv4: sync failed: {words}" in caplog.messages
    assert daemon.sync()


def test_an_audit_reads_tables_that_are_owned(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """By a process of its own, which does not own them."""
    daemon.audit()
    assert caplog.messages == []


@pytest.mark.parametrize("how", ["killed", "replaced after a large answer"])
def test_the_next_process_of_the_library_takes_over(
    daemon: Daemon, library: LibraryProcess, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "killed":
        assert library.pid is not None
        os.kill(library.pid, signal.SIGKILL)
        with pytest.raises(KernelError):
            library.run("list tables")
    else:
        with monkeypatch.context() as small:
            small.setattr("knft.kernel.process.RECYCLE_BYTES", 10)
            library.run("list tables")
    assert daemon.sync()
    assert _flags() == _owned()


def test_what_an_idle_process_owned_is_taken_over_when_it_dies(daemon: Daemon, library: LibraryProcess) -> None:
    """Without anything to sync: whoever kills it must not get the tables."""
    asked, stop = threading.Event(), threading.Event()
    daemon._wake = asked.set
    guard = threading.Thread(target=daemon.guard, args=[library, stop])
    guard.start()
    before = library.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert asked.wait(HANG)
    assert daemon.sync()
    assert _flags() == _owned()
    assert library.pid not in (None, before)
    stop.set()
    library.close()  # Which the guard takes for no death.
    guard.join(HANG)
    assert not guard.is_alive()


def test_a_daemon_takes_over_from_one_that_was_killed(daemon: Daemon, library: LibraryProcess) -> None:
    """And sends nothing else where nothing has changed."""
    del daemon  # It has made the tables.
    library.close()
    with LibraryProcess() as another:
        second = live_daemon(Config("node-1"), another)
        assert second.sync()
        assert _flags() == _owned()


def test_tables_of_a_knft_that_did_not_own_them_are_replaced(harness: KernelHarness, library: LibraryProcess) -> None:
    """The harness works through a library that owns nothing."""
    harness.sync()
    assert _flags() == {frozenset()}
    assert live_daemon(Config("node-1"), library).sync()
    assert _flags() == _owned()
