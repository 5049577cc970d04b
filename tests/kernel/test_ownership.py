"""Owned tables: where supported (libnftables 1.1.0, Linux 6.9), only knft can change its table.

``make test`` runs with Debian 12's libnftables 1.0.6, which does not support them; ``make test-trixie`` with 1.1.3.
"""

import os
import signal
import threading

import pytest

from knft.config import Config
from knft.errors import KernelError
from knft.families import Family
from knft.kernel.ownership import Ownership
from knft.kernel.process import WorkerProcess
from knft.kernel.table_flags import flags_of
from knft.render.names import TABLE
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon
from tests.support.kernel_harness import KernelHarness
from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import CAN_OWN_TABLES

pytestmark = pytest.mark.kernel

TIMEOUT = 30.0


@pytest.fixture
def daemon(library: WorkerProcess) -> Daemon:
    started = live_daemon(Config("node-1"), library)
    assert started.sync()
    return started


def _flags() -> set[frozenset[str]]:
    return {flags_of(family.nft, TABLE) for family in Family}


def _expected_flags() -> set[frozenset[str]]:
    return {frozenset({"owner", "persist"})} if CAN_OWN_TABLES else {frozenset()}


def test_probe_detects_support(library: WorkerProcess) -> None:
    assert Ownership(library, TABLE, tuple(Family)).is_supported is CAN_OWN_TABLES
    assert "knft-probe" not in library.run("list tables")


def test_tables_are_owned_if_supported(daemon: Daemon) -> None:
    assert daemon.sync()
    assert _flags() == _expected_flags()


def test_flush_by_another_program_skips_owned_tables(daemon: Daemon, namespace: Namespace) -> None:
    del daemon  # It has created the tables.
    before = namespace.run(["nft", "list", "ruleset"]).stdout
    namespace.run(["nft", "flush", "ruleset"])
    assert namespace.run(["nft", "list", "ruleset"]).stdout == (before if CAN_OWN_TABLES else "")


def test_second_knft_and_cleanup_report_owned_tables(
    daemon: Daemon, namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Without owned tables the cleanup succeeds, since it cannot detect the other instance."""
    cleanup = knft(namespace, "cleanup", check=False)
    if not CAN_OWN_TABLES:
        assert cleanup.returncode == 0
        return
    message = "table {0} knft is owned by another process: stop the other knft instance first"
    lines = [f"knft: cannot remove table {family} knft: {message.format(family)}" for family in ("ip", "ip6")]
    lines.append("knft: cannot remove all of knft's tables: 2 failures, see above; run the command again")
    assert (cleanup.returncode, cleanup.stderr.splitlines()) == (1, lines)
    with WorkerProcess() as library:
        second = live_daemon(Config("node-1", service_cidrs=("10.96.0.0/16",)), library)
        assert not second.sync()
    assert f"IPv4: sync failed: {message.format('ip')}" in caplog.messages
    assert daemon.sync()


def test_audit_can_read_owned_tables(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """The audit's worker process does not own the tables."""
    daemon.audit()
    assert caplog.messages == []


@pytest.mark.parametrize("cause", ["killed", "replaced after a large answer"])
def test_next_worker_takes_ownership_of_the_tables(
    daemon: Daemon, library: WorkerProcess, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    if cause == "killed":
        assert library.pid is not None
        os.kill(library.pid, signal.SIGKILL)
        with pytest.raises(KernelError):
            library.run("list tables")
    else:
        with monkeypatch.context() as small:
            small.setattr("knft.kernel.process.RECYCLE_BYTES", 10)
            library.run("list tables")
    assert daemon.sync()
    assert _flags() == _expected_flags()


def test_new_worker_takes_ownership_when_an_idle_worker_dies(
    daemon: Daemon, library: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """knft does this although there is nothing to sync, so that no other program can take the tables."""
    woken, stop = threading.Event(), threading.Event()
    monkeypatch.setattr(daemon._runner, "request", woken.set)
    guard = threading.Thread(target=daemon.watch_worker_process, args=[library, stop])
    guard.start()
    before = library.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert woken.wait(TIMEOUT)
    assert daemon.sync()
    assert _flags() == _expected_flags()
    assert library.pid not in (None, before)
    stop.set()
    library.close()  # The guard must not report this as a death.
    guard.join(TIMEOUT)
    assert not guard.is_alive()


def test_daemon_takes_ownership_of_a_killed_daemons_tables(daemon: Daemon, library: WorkerProcess) -> None:
    """The second daemon sends nothing else if nothing has changed."""
    del daemon  # It has created the tables.
    library.close()
    with WorkerProcess() as another:
        second = live_daemon(Config("node-1"), another)
        assert second.sync()
        assert _flags() == _expected_flags()


def test_tables_without_owner_are_replaced(harness: KernelHarness, library: WorkerProcess) -> None:
    """The harness creates tables without an owner."""
    harness.sync()
    assert _flags() == {frozenset()}
    assert live_daemon(Config("node-1"), library).sync()
    assert _flags() == _expected_flags()
