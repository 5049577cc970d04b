"""Who may ask the running knft, and which process a command believes; clients that are slow or many.

An unprivileged user can start no process of another user, not even in a nested user namespace: the kernel reports this
user. So ``test_other_users_are_refused`` does not exist there, because a skipped test fails the run; root runs it.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from knft.control import client
from knft.control.client import ask
from knft.control.messages import STATUS_PATH, socket_name
from knft.errors import ControlError
from knft.kernel import instance_lock
from knft.kernel.instance_lock import holder_port_id
from knft.serve.control_server import MAX_CONNECTIONS
from tests.control.daemon import ControlledKnft
from tests.support.containers import in_container
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, knft
from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.processes import child_processes

pytestmark = pytest.mark.kernel

ALL_USERS = "4294967295" in Path("/proc/self/uid_map").read_text()
"""Whether processes of other users are possible."""
NO_DAEMON = "knft: no knft process runs in this network namespace; to look at the kernel's rules instead, use 'nft "
SQUAT = """
import socket, sys, time
listening = socket.socket(socket.AF_UNIX)
listening.bind("\\0" + sys.argv[1])
listening.listen()
print("listening", flush=True)
while True:
    connection, _ = listening.accept()
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n{}")
    connection.close()
"""
HOLD_LOCK = """
from knft.kernel.instance_lock import InstanceLock
import time
lock = InstanceLock()
print(lock.port_id, flush=True)
time.sleep(600)
"""
ASK_DIRECTLY = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(60)
connection.connect("\\0" + sys.argv[1])
print(connection.recv(1000).decode())
"""


def control_name(namespace: Namespace) -> str:
    with namespace.entered():
        port_id = holder_port_id()
    assert port_id is not None
    return socket_name(port_id)


@contextmanager
def python(namespace: Namespace, code: str, *arguments: str) -> Iterator[str]:
    """Run code in a process until it has printed a line; yield the line, and kill the process at the end."""
    process = namespace.popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def failed(namespace: Namespace, *command: str) -> str:
    """Return the error of ``knft status``, which must exit with status 1."""
    done = namespace.run([*command, *KNFT, "status"], check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.fixture
def empty() -> Iterator[Namespace]:
    made = Namespace.create("empty")
    yield made
    made.close()


def test_kernel_without_nfnetlink_log_has_no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a process that takes the lock loads the module."""
    monkeypatch.setattr(instance_lock, "_GROUPS", tmp_path / "nfnetlink_log")
    with pytest.raises(ControlError, match="no knft process runs in this network namespace, or the kernel has"):
        ask(STATUS_PATH)


def test_daemon_that_does_not_accept_connections_has_not_answered(
    empty: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_TIMEOUT", struct.pack("@ll", 0, 50_000))
    with (
        python(empty, HOLD_LOCK) as port_id,
        empty.entered(),
        socket.socket(socket.AF_UNIX) as listening,
        socket.socket(socket.AF_UNIX) as first,
    ):
        listening.bind(socket_name(int(port_id)))
        listening.listen(0)
        first.connect(listening.getsockname())
        with pytest.raises(ControlError, match="; it did not answer within 10 s"):
            ask(STATUS_PATH)


def test_without_a_daemon_the_error_says_what_to_use_instead(empty: Namespace) -> None:
    assert failed(empty).startswith(NO_DAEMON)
    assert knft(empty, "history", check=False).stderr.startswith(NO_DAEMON)


def test_command_that_holds_the_lock_is_named(empty: Namespace) -> None:
    with python(empty, HOLD_LOCK):
        message = failed(empty)
    assert "a knft process runs in this network namespace: pid " in message
    assert "; it refuses connections: retry if it is starting; " in message


if ALL_USERS:

    def test_other_users_are_refused(daemon: ControlledKnft) -> None:
        """The command cannot find the daemon, and the daemon refuses a client that knows its name."""
        user = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
        assert failed(daemon.namespace, *user) == "knft: only root may ask the running knft: run this command as root\n"
        name = control_name(daemon.namespace).removeprefix("\0")
        interpreter = os.path.realpath(sys.executable)
        done = daemon.namespace.run([*user, interpreter, "-S", "-c", ASK_DIRECTLY, name])
        assert done.stdout.startswith("HTTP/1.1 403 Forbidden")
        assert "only root may ask knft" in done.stdout


def test_root_of_another_user_namespace_is_not_trusted_to_check(daemon: ControlledKnft) -> None:
    """It may not read which process holds the lock."""
    message = failed(daemon.namespace, "unshare", "--user", "--map-root-user")
    assert "run this command as root" in message


def test_squatter_on_the_name_is_not_believed(empty: Namespace) -> None:
    """It has the same user as the holder of the lock, and the right name."""
    with python(empty, HOLD_LOCK) as port_id, python(empty, SQUAT, socket_name(int(port_id)).removeprefix("\0")):
        message = failed(empty)
    assert "listens at knft's control socket, but does not hold knft's instance lock" in message


def test_client_in_another_pid_namespace_cannot_check_and_says_so(daemon: ControlledKnft) -> None:
    message = failed(daemon.namespace, "unshare", "--pid", "--fork", "--mount-proc")
    assert "run this command in knft's container, or in the host's PID namespace" in message


def test_container_like_that_of_the_pod_may_ask(daemon: ControlledKnft) -> None:
    """As ``kubectl exec``: root with CAP_NET_ADMIN alone, and a read-only root file system."""
    done = daemon.namespace.run([*in_container("NET_ADMIN"), *KNFT, "status", "-o", "json"])
    assert '"problem": ""' in done.stdout


def test_root_of_the_node_may_ask_in_the_container_s_namespaces(empty: Namespace, tmp_path: Path) -> None:
    """As docs/operations/troubleshooting.md#no-api-server describes, with a container's own mounts and PIDs."""
    container = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    with KnftRun(empty, tmp_path, container) as running:
        (pid,) = child_processes(running.process.pid)
        enter = ("nsenter", f"--target={pid}", "--mount", "--pid", "--net")
        text = empty.run([*enter, *KNFT, "status"]).stdout
    assert text.startswith("knft is ready")
    assert "\nprocess       pid 1, " in text


def test_stuck_clients_delay_neither_syncs_nor_commands(daemon: ControlledKnft) -> None:
    """Clients that send half a request, or do not read the answer, lose their connections to newer ones."""
    name = control_name(daemon.namespace)
    with ExitStack() as stack:
        stuck = []
        for number in range(5 * MAX_CONNECTIONS):
            with daemon.namespace.entered():
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(BrokenPipeError, ConnectionResetError):
                client.connect(name)
                client.sendall(b"GET /hist" if number % 2 else b"GET /history HTTP/1.1\r\n\r\n")
            stuck.append(client)
        daemon.write("web", service("web", 1), *slices("web", (11, 12)))
        daemon.wait_for_change("web", "--endpoint", "10.244.2.13")
        closed = [client for client in stuck[1::2] if is_closed(client)]
        assert len(closed) >= len(stuck) // 2 - MAX_CONNECTIONS


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0)
    deadline = time.monotonic() + 0.2  # Nothing reports that a connection stays open.
    while time.monotonic() < deadline:
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return True
    return False
