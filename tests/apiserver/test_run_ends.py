"""``knft run`` against the small API server: how it ends, by signals and by what cannot be meant."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from knft.apiserver.connection import Connection
from knft.apiserver.source import ClusterSource
from knft.cli.ending import Ending
from knft.cli.run import PATIENCE
from knft.configuration.settings import ClientSettings
from tests.apiserver.cluster import service
from tests.apiserver.server import ApiServer
from tests.apiserver.started import NODE, Started, kubeconfig_of
from tests.packets.node import KNFT
from tests.packets.running import workers_of
from tests.support.lab.logged_process import HANG
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def test_probes_that_cannot_be_served_end_it_where_that_is_asked_for(
    namespace: Namespace, server: ApiServer, tmp_path: Path
) -> None:
    started = Started(
        namespace, server, tmp_path, "--healthz-bind-address=192.0.2.99:10256", "--bind-address-hard-fail"
    )
    assert started.ends() == 1
    assert "the health server failed" in started.said()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--kubeconfig=/nowhere"], "/nowhere"),
        (["--kubeconfig=/dev/null"], "/dev/null"),
        (["--master=https://127.0.0.1:1", "--config=/nowhere"], "/nowhere"),
    ],
)
def test_a_cluster_that_cannot_be_meant_is_one_line(namespace: Namespace, flags: list[str], words: str) -> None:
    done = namespace.run([*KNFT, "run", "--nodeport-addresses=primary", "--node", NODE, *flags], check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("knft: ")
    assert words in line


def test_the_event_of_a_hard_failure_is_sent(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    started = Started(
        namespace, server, tmp_path, "--healthz-bind-address=192.0.2.99:10256", "--bind-address-hard-fail"
    )
    assert started.ends() == 1
    posted = [json.loads(asked.body)["reason"] for asked in server.asked if asked.form == "post"]
    assert "FailedToStartProxierHealthcheck" in posted


def test_a_source_that_breaks_unexpectedly_ends_it() -> None:
    """Loudly: with what happened, and a status that has it started again."""
    stop = threading.Event()
    ending = Ending(stop, patience=0, leave=lambda _: None)
    source = ClusterSource(Connection(ClientSettings(server="http://127.0.0.1:1")), NODE, _fail, failed=ending.fail)
    source._followers = {"services": _Broken()}  # type: ignore[dict-item]
    source._follow(source._followers["services"], stop)
    with pytest.raises(RuntimeError, match="nobody has thought of this"):
        ending.raise_failure()


def _fail(_: object) -> None:
    raise AssertionError


class _Broken:
    def run(self, _: threading.Event) -> None:
        message = "nobody has thought of this"
        raise RuntimeError(message)


@pytest.mark.parametrize("stuck", ["a signal", "a failure"])
def test_it_ends_although_libnftables_hangs(
    namespace: Namespace, server: ApiServer, tmp_path: Path, stuck: str
) -> None:
    """A commit is carried out as a whole or not at all, whether or not anybody waits for it."""
    # The rest of the second is for the interpreter's lock, and for the kernel to take the memory back.
    assert PATIENCE <= 0.5
    started = Started(namespace, server, tmp_path, "--min-sync-period=0")
    started.until_in_force()
    (worker,) = workers_of(started.process.pid)
    before = _changes(started)
    os.kill(worker, signal.SIGSTOP)
    server.cluster.put("services", service("another", 10))
    started.until(lambda: _changes(started) > before)
    # Of waiting for the library nothing is to be seen.
    time.sleep(0.5)
    if stuck == "a signal":
        started.process.terminate()
        assert started.ends() == 0
    else:
        server.cluster.remove("nodes", NODE, "")
        assert started.ends() == 1
        assert "was deleted" in started.said()


def _changes(started: Started) -> float:
    name = "kubeproxy_sync_proxy_rules_service_changes_total "
    lines = started.get(10249, "/metrics")[1].splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_signal_ends_it_while_it_starts(namespace: Namespace, tmp_path: Path) -> None:
    """Also as a container's first process, which ignores what it has no handler for."""
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\ntouch $0.started\nexec sleep 60\n")
    plugin.chmod(0o755)
    kubeconfig = tmp_path / "kubeconfig"
    execute = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    content = kubeconfig_of("http://127.0.0.1:1")
    content["users"][0]["user"] = {"exec": execute}
    kubeconfig.write_text(json.dumps(content))
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        *KNFT,
        "run",
        f"--kubeconfig={kubeconfig}",
        "--node=node-1",
    ]
    process = namespace.popen(command)
    namespace.at_close(process.kill)
    deadline = time.monotonic() + HANG
    while not (tmp_path / "plugin.started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (first,) = _children(process.pid)
    os.kill(first, signal.SIGTERM)
    assert process.wait(HANG) == 128 + signal.SIGTERM


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
