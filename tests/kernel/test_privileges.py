"""``knft run`` keeps CAP_NET_ADMIN and nothing more: the daemon, every thread, and the process of libnftables."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from knft.kernel.privileges import CAP_NET_ADMIN
from tests.kernel.following import Daemon
from tests.packets.running import workers_of
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
ONLY = f"{1 << CAP_NET_ADMIN:016x}"
NONE = f"{0:016x}"
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

USERS = {
    "root": [],
    # As a container's process may have it: the only capability of a user that is not root.
    "another user": ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--net", "--keep-caps"],
    "root of a user namespace": ["unshare", "--user", "--map-root-user", "--net"],
}


def _statuses(daemon: Daemon) -> dict[str, dict[str, str]]:
    """Return what /proc says of every thread, and of the process of libnftables."""
    tasks = {f"thread {task.name}": task for task in Path(f"/proc/{daemon.process.pid}/task").iterdir()}
    tasks |= {f"library {pid}": Path(f"/proc/{pid}") for pid in workers_of(daemon.process.pid)}
    return {name: _status(task / "status") for name, task in tasks.items()}


def _status(file: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in file.read_text().splitlines() if ":\t" in line)


@pytest.fixture(params=USERS)
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    namespace = Namespace.create("privileges")
    with Daemon(namespace, tmp_path, USERS[request.param]) as started:
        yield started
    namespace.close()


def _assert_least(daemon: Daemon) -> None:
    statuses = _statuses(daemon)
    assert any(name.startswith("library") for name in statuses)
    assert len(statuses) > 5
    for name, status in statuses.items():
        assert {kind: status[kind] for kind in SETS} == dict.fromkeys(SETS, ONLY), name
        assert status["NoNewPrivs"] == "1", name


def test_everything_runs_with_one_capability_and_works(daemon: Daemon) -> None:
    """Also a process of libnftables that is started later."""
    daemon.until(lambda: len(workers_of(daemon.process.pid)) == 1)
    _assert_least(daemon)
    daemon.write(2)
    daemon.until(lambda: daemon.serves(2))
    (library,) = workers_of(daemon.process.pid)
    os.kill(library, signal.SIGKILL)
    daemon.write(3)
    daemon.until(lambda: daemon.serves(3) and workers_of(daemon.process.pid) not in ([], [library]))
    _assert_least(daemon)
    assert "failed" not in daemon.said()


def _python(code: str, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*before, sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_among_several_threads_it_is_refused() -> None:
    """The others would keep what they have."""
    done = _python(
        "import threading, time\n"
        "from knft.kernel.privileges import drop_privileges\n"
        "threading.Thread(target=time.sleep, args=[60], daemon=True).start()\n"
        "drop_privileges()"
    )
    assert done.returncode == 1
    assert done.stderr.endswith("they have to be dropped while there is one\n")


def test_what_is_not_there_cannot_be_kept() -> None:
    code = (
        "from knft.errors import UnsupportedError\n"
        "from knft.kernel.privileges import drop_privileges\n"
        "try:\n    drop_privileges()\n"
        "except UnsupportedError as error:\n    print(error)"
    )
    done = _python(code, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert done.stdout == "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability\n"


def test_where_the_bounding_set_cannot_be_changed_everything_else_is_given_up() -> None:
    """Without CAP_SETPCAP, as in a container with few capabilities; an executed program gives up its own, too."""
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
    assert {kind: status[kind] for kind in SETS if kind != "CapBnd"} == dict.fromkeys(set(SETS) - {"CapBnd"}, ONLY)
    assert status["CapBnd"] not in {ONLY, NONE}
    assert status["NoNewPrivs"] == "1"
