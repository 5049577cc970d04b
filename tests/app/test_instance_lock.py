"""Commands that change the network namespace beside a running ``knft run``."""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from knft.app import instance_lock
from knft.errors import InstanceLockedError, KernelError
from tests.support.knft_command import KNFT, NODE_FLAG, knft
from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import LoggedProcess

pytestmark = pytest.mark.kernel


@contextmanager
def _running_knft(folder: Path) -> Iterator[KnftRun]:
    """Yield ``knft run`` after its first sync."""
    with closing(Namespace.create("locked")) as namespace, KnftRun(namespace, folder) as started:
        yield started


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnftRun]:
    """Return a process that no test stops."""
    with _running_knft(tmp_path_factory.mktemp("daemon")) as started:
        yield started


@pytest.mark.parametrize("flags", [[], ["--once"], ["--init-only"]], ids=str)
def test_second_run_exits_and_names_the_first(daemon: KnftRun, tmp_path: Path, flags: list[str]) -> None:
    done = knft(daemon.namespace, "run", "--manifests", str(tmp_path), *NODE_FLAG, *flags, check=False)
    assert done.returncode == 1
    assert f"another knft process runs in this network namespace: pid {daemon.process.pid}, '{sys.executable}" in (
        done.stderr
    )
    assert done.stderr.endswith("; stop it first, or wait until it exits with --wait-for-lock\n")


def test_process_in_another_pid_namespace_is_named_by_its_host_id(daemon: KnftRun) -> None:
    """A container does not see the command line of the process."""
    in_container = ["unshare", "--pid", "--fork", "--mount-proc", *KNFT, "cleanup"]
    done = daemon.namespace.run(in_container, check=False)
    assert done.returncode == 1
    assert f"network namespace: pid {daemon.process.pid} on the host; stop it first" in done.stderr


@contextmanager
def _waiting_knft(first: KnftRun, folder: Path, *flags: str) -> Iterator[LoggedProcess]:
    """Yield another ``knft run`` that waits until the first exits; kill it at the end."""
    command = [*KNFT, "run", "--manifests", str(folder / "manifests"), *NODE_FLAG, "--wait-for-lock", *flags]
    second = LoggedProcess(first.namespace, command, folder / "second-log")
    try:
        second.wait_until(lambda: "waiting until it exits" in second.log_text())
        yield second
    finally:
        second.process.kill()
        second.process.wait()


def test_waiting_process_continues_when_the_first_is_killed(tmp_path: Path) -> None:
    with _running_knft(tmp_path) as first, _waiting_knft(first, tmp_path, "-v2") as second:
        assert "full sync" not in second.log_text()
        first.process.kill()
        second.wait_until(lambda: second.log_text().count("full sync") == 2)
        assert second.log_text().count("another knft process") == 1
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait() == 0


def test_waiting_process_reads_the_manifests_after_the_first_has_ended(tmp_path: Path) -> None:
    """The first has served a change during the wait."""
    with _running_knft(tmp_path) as first, _waiting_knft(first, tmp_path, "--once") as second:
        first.write_service(2)
        first.wait_until(lambda: first.has_cluster_ip(2))
        first.process.kill()
        assert second.process.wait() == 0
        assert first.has_cluster_ip(2)


def test_missing_directory_is_an_error_before_the_wait(daemon: KnftRun, tmp_path: Path) -> None:
    arguments = ["run", "--manifests", str(tmp_path / "missing"), *NODE_FLAG, "--wait-for-lock"]
    done = knft(daemon.namespace, *arguments, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot read the manifest directory: No such file or directory" in done.stderr


def test_waiting_process_exits_on_sigterm(daemon: KnftRun, tmp_path: Path) -> None:
    second = LoggedProcess(daemon.namespace, [*KNFT, "cleanup", "--wait-for-lock"], tmp_path / "second-log")
    second.wait_until(lambda: "waiting until it exits" in second.log_text())
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait() == -signal.SIGTERM
    assert daemon.has_cluster_ip(1)


@pytest.mark.parametrize("command", [["cleanup"], ["run", "--cleanup"]], ids=str)
def test_cleanup_removes_nothing_while_knft_runs(daemon: KnftRun, command: list[str]) -> None:
    done = knft(daemon.namespace, *command, check=False)
    assert done.returncode == 1
    assert f": pid {daemon.process.pid}, " in done.stderr
    assert "table ip knft" not in done.stdout
    assert daemon.has_cluster_ip(1)
    assert "changed the table" not in daemon.log_text()


def test_forced_cleanup_removes_the_tables_with_a_warning(daemon: KnftRun) -> None:
    done = knft(daemon.namespace, "cleanup", "--force")
    warning, *steps = done.stdout.splitlines()
    assert warning.endswith("; it will create the tables again")
    assert steps == ["table ip knft: removed", "table ip6 knft: removed"]
    daemon.wait_until(lambda: daemon.has_cluster_ip(1))


_RUN_UNTIL_THE_DAEMON = """
import os, sys
from contextlib import nullcontext
from knft.app import run
from knft.cli.main import main

def print_and_exit(*_, other_subscribers, **__):
    print("leaves tables:", other_subscribers is not None, flush=True)
    os._exit(0)

run.live_daemon = print_and_exit
if sys.argv.pop(1) == "without":
    run.take_instance_lock = lambda wait: nullcontext()
main()
"""


@pytest.mark.parametrize("lock", ["with", "without"])
def test_only_a_process_with_the_lock_leaves_tables_to_an_older_version(lock: str, tmp_path: Path) -> None:
    """Without the lock, which not every kernel has, the other process may leave the table, too."""
    namespace = Namespace.create("lock")
    script = [sys.executable, "-P", "-c", _RUN_UNTIL_THE_DAEMON, lock]
    done = namespace.run([*script, "run", "--manifests", str(tmp_path), *NODE_FLAG])
    assert done.stdout == f"leaves tables: {lock == 'with'}\n"
    namespace.close()


def test_warning_is_not_repeated_while_the_holder_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that is ending has no command line any more; another holder is named."""
    attempts = iter(
        [
            InstanceLockedError("pid 7, 'knft run'", 7),
            InstanceLockedError("pid 7", 7),
            InstanceLockedError("unknown"),
            InstanceLockedError("pid 7", 7),
            InstanceLockedError("pid 8", 8),
            KernelError("end"),
        ]
    )

    def attempt() -> None:
        raise next(attempts)

    monkeypatch.setattr(instance_lock, "InstanceLock", attempt)
    monkeypatch.setattr(instance_lock, "POLL_SECONDS", 0.0)
    instance_lock.take_instance_lock(wait=True)
    first, second, _ = caplog.messages
    assert (first.partition(";")[0], second.partition(";")[0]) == ("pid 7, 'knft run'", "pid 8")
