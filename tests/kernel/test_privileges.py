"""``knft run`` keeps CAP_NET_ADMIN only, in the daemon, all its threads and its libnftables process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from knft.kernel.privileges import CAP_NET_ADMIN
from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel
NET_ADMIN_ONLY = f"{1 << CAP_NET_ADMIN:016x}"
NO_CAPABILITY = f"{0:016x}"
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

COMMANDS_BY_USER = {
    "root": [],
    # As in a container: the only capability of a user other than root.
    "another user": ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--net", "--keep-caps"],
    "root of a user namespace": ["unshare", "--user", "--map-root-user", "--net"],
}


def _statuses(daemon: KnftRun) -> dict[str, dict[str, str]]:
    """Return the /proc status of each thread and of the libnftables process."""
    tasks = {f"thread {task.name}": task for task in Path(f"/proc/{daemon.process.pid}/task").iterdir()}
    tasks |= {f"library {pid}": Path(f"/proc/{pid}") for pid in worker_processes(daemon.process.pid)}
    statuses = {}
    for name, task in tasks.items():
        with suppress(OSError):  # It has ended.
            lines = (task / "status").read_text().splitlines()
            statuses[name] = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return statuses


@pytest.fixture(params=COMMANDS_BY_USER)
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KnftRun]:
    namespace = Namespace.create("privileges")
    with KnftRun(namespace, tmp_path, COMMANDS_BY_USER[request.param]) as started:
        yield started
    namespace.close()


def _assert_only_net_admin(daemon: KnftRun) -> None:
    statuses = _statuses(daemon)
    assert any(name.startswith("library") for name in statuses)
    assert len(statuses) > 5
    for name, status in statuses.items():
        assert {kind: status[kind] for kind in CAPABILITY_SETS} == dict.fromkeys(CAPABILITY_SETS, NET_ADMIN_ONLY), name
        assert status["NoNewPrivs"] == "1", name


def test_daemon_works_with_one_capability(daemon: KnftRun) -> None:
    """Including a libnftables process that is started later."""
    daemon.wait_until(lambda: len(worker_processes(daemon.process.pid)) == 1)
    _assert_only_net_admin(daemon)
    daemon.write_service(2)
    daemon.wait_until(lambda: daemon.has_cluster_ip(2))
    (library,) = worker_processes(daemon.process.pid)
    os.kill(library, signal.SIGKILL)
    daemon.write_service(3)
    daemon.wait_until(lambda: daemon.has_cluster_ip(3) and worker_processes(daemon.process.pid) not in ([], [library]))
    _assert_only_net_admin(daemon)
    assert "failed" not in daemon.log_text()


def _python(code: str, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*before, sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_dropping_fails_with_several_threads() -> None:
    """The other threads would keep their capabilities."""
    done = _python(
        "import threading, time\n"
        "from knft.kernel.privileges import drop_privileges\n"
        "threading.Thread(target=time.sleep, args=[60], daemon=True).start()\n"
        "drop_privileges()"
    )
    assert done.returncode == 1
    assert done.stderr.endswith("cannot drop capabilities while the process has several threads\n")


def test_missing_net_admin_is_reported() -> None:
    code = (
        "from knft.errors import UnsupportedError\n"
        "from knft.kernel.privileges import drop_privileges\n"
        "try:\n    drop_privileges()\n"
        "except UnsupportedError as error:\n    print(error)"
    )
    done = _python(code, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert done.stdout == "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability\n"


def test_other_sets_are_dropped_if_the_bounding_set_is_fixed() -> None:
    """Without CAP_SETPCAP, as in some containers; the worker process drops its own capabilities, too."""
    code = (
        "import subprocess\n"
        "from pathlib import Path\n"
        "from knft.kernel.privileges import drop_privileges\n"
        "drop_privileges()\n"
        "print(Path('/proc/self/status').read_text())"
    )
    done = _python(code, "setpriv", "--bounding-set=-setpcap", "--inh-caps=-setpcap")
    assert done.returncode == 0, done.stderr
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert {kind: status[kind] for kind in CAPABILITY_SETS if kind != "CapBnd"} == dict.fromkeys(
        set(CAPABILITY_SETS) - {"CapBnd"}, NET_ADMIN_ONLY
    )
    assert status["CapBnd"] not in {NET_ADMIN_ONLY, NO_CAPABILITY}
    assert status["NoNewPrivs"] == "1"
