"""One process of each network namespace holds the instance lock; the kernel releases it when the process ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from knft.errors import InstanceLockedError, KernelError, UnsupportedError
from knft.kernel import instance_lock
from knft.kernel.instance_lock import InstanceLock
from knft.kernel.process_names import sees_host_processes
from tests.support.lab.namespace import Namespace

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("namespace")]

HOLD = """
import time
from knft.kernel.instance_lock import InstanceLock
lock = InstanceLock()
{then}
print("held", flush=True)
time.sleep(600)
"""
FORK = "import os\nif os.fork():\n    time.sleep(600)"
"""The child goes on: it says that the lock is held after it has closed its copy."""
TAKE = """
from knft.errors import UnsupportedError
from knft.kernel.instance_lock import InstanceLock
try:
    InstanceLock()
except UnsupportedError as error:
    print(error)
"""
BIND_PORT_IDS = """
import os, socket, sys, time
sockets = []
for port_id in map(int, sys.argv[1:]):
    sockets.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
    sockets[-1].bind((port_id, 0))
print("bound", flush=True)
time.sleep(600)
"""
UNPRIVILEGED = {
    "no capability": ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"],
    "root of a user namespace": ["unshare", "--user", "--map-root-user"],
}


@contextmanager
def _running(code: str, *arguments: str, before: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in a process group of its own until it has printed a line; kill the group at the end."""
    command = [*before, sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _holder(pid: int) -> str:
    """Return the pattern of the message about a holder, whose process id in another PID namespace is not known here."""
    return rf": pid {pid}, '.*python" if sees_host_processes() else r": pid \d+ on the host"


def test_second_lock_is_refused_until_the_first_is_closed() -> None:
    with InstanceLock(), pytest.raises(InstanceLockedError, match=_holder(os.getpid())):
        InstanceLock()
    InstanceLock().close()


def test_each_network_namespace_has_its_lock() -> None:
    other = Namespace.create("other")
    with InstanceLock(), other.entered(), InstanceLock():
        pass
    other.close()


@pytest.mark.parametrize("then", ["", FORK], ids=["a process", "a process whose child lives on"])
def test_kernel_releases_the_lock_of_a_killed_process(then: str) -> None:
    with _running(HOLD.format(then=then)) as holder:
        with pytest.raises(InstanceLockedError, match=_holder(holder.pid)):
            InstanceLock()
        holder.kill()
        holder.wait()
        InstanceLock().close()


@pytest.mark.parametrize("before", UNPRIVILEGED.values(), ids=UNPRIVILEGED)
def test_process_without_net_admin_cannot_take_the_lock(namespace: Namespace, before: list[str]) -> None:
    done = namespace.run([*before, sys.executable, "-c", TAKE])
    assert done.stdout.startswith("CAP_NET_ADMIN is missing in the user namespace that owns the network namespace")


def test_unprivileged_process_cannot_keep_the_lock_from_knft() -> None:
    """Any process may use the port ids that knft prefers; then another process is not named."""
    wanted = [str(port_id) for port_id in instance_lock._port_ids(instance_lock._host_process_id())]
    with (
        _running(BIND_PORT_IDS, *wanted, before=tuple(UNPRIVILEGED["no capability"])),
        InstanceLock(),
        pytest.raises(InstanceLockedError, match=r"^another process, whose netlink port id is \d+, has bound group"),
    ):
        InstanceLock()


def test_kernel_without_nfnetlink_log_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_lock, "_LOG_CONFIG", 200 << 8 | 1)  # No subsystem has this number.
    with pytest.raises(KernelError, match="CONFIG_NETFILTER_NETLINK_LOG") as caught:
        InstanceLock()
    assert not isinstance(caught.value, InstanceLockedError | UnsupportedError)


def test_lock_needs_no_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the message about its holder reads a file, which may be missing, or readable for root only."""
    monkeypatch.setattr(instance_lock, "_GROUPS", Path("/nonexistent"))
    with InstanceLock(), pytest.raises(InstanceLockedError, match=r"^another knft process, whose id is unknown, runs"):
        InstanceLock()
