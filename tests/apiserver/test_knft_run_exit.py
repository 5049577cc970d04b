"""``knft run`` exits: on signals, on failures, and on invalid settings."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from knft.apiserver.api_client import ApiClient
from knft.apiserver.source import ApiServerSource
from knft.app.run import SHUTDOWN_GRACE_SECONDS
from knft.app.shutdown import Shutdown
from knft.configuration.settings import ClientSettings
from tests.apiserver.kubeconfigs import PLUGIN_VERSION
from tests.support.api_server_knft import NODE, ApiServerKnft, kubeconfig_for
from tests.support.fake_api.cluster import service
from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import TIMEOUT
from tests.support.processes import child_processes, worker_processes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel


def test_bind_address_hard_fail_ends_the_process(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    knft = ApiServerKnft(
        namespace, server, tmp_path, "--healthz-bind-address=192.0.2.99:10256", "--bind-address-hard-fail"
    )
    assert knft.wait_exit() == 1
    assert "the health server cannot listen on 192.0.2.99:10256" in knft.log_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--kubeconfig=/nowhere"], "/nowhere"),
        (["--kubeconfig=/dev/null"], "/dev/null"),
        (["--master=https://127.0.0.1:1", "--config=/nowhere"], "/nowhere"),
    ],
)
def test_invalid_client_configuration_is_one_line(namespace: Namespace, flags: list[str], words: str) -> None:
    done = namespace.run([*KNFT, "run", "--nodeport-addresses=primary", "--node", NODE, *flags], check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("knft: ")
    assert words in line


def test_event_of_a_hard_failure_is_sent(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    knft = ApiServerKnft(
        namespace, server, tmp_path, "--healthz-bind-address=192.0.2.99:10256", "--bind-address-hard-fail"
    )
    assert knft.wait_exit() == 1
    posted = [json.loads(request.body)["reason"] for request in server.requests if request.kind == "post"]
    assert "FailedToStartProxierHealthcheck" in posted


def test_unexpected_source_error_ends_the_process() -> None:
    """The error is raised in the main thread, and the exit status makes the supervisor restart knft."""
    stop = threading.Event()
    shutdown = Shutdown(stop, grace_seconds=0, exit_process=lambda _: None)
    source = ApiServerSource(
        ApiClient(ClientSettings(server="http://127.0.0.1:1")), NODE, _fail, on_failure=shutdown.fail
    )
    source._reflectors = {"services": _Broken()}  # type: ignore[dict-item]
    source._run_reflector(source._reflectors["services"], stop)
    with pytest.raises(RuntimeError, match="an unexpected error"):
        shutdown.raise_failure()


def _fail(_: object) -> None:
    raise AssertionError


class _Broken:
    def run(self, _: threading.Event) -> None:
        message = "an unexpected error"
        raise RuntimeError(message)


@pytest.mark.parametrize("stuck", ["a signal", "a failure"])
def test_exit_while_libnftables_hangs(namespace: Namespace, server: FakeApiServer, tmp_path: Path, stuck: str) -> None:
    """The kernel carries out a commit as a whole or not at all, whether or not knft waits for it."""
    # The exit may take 1 s; the other half is for the interpreter's shutdown and the kernel's release of memory.
    assert SHUTDOWN_GRACE_SECONDS <= 0.5
    knft = ApiServerKnft(namespace, server, tmp_path, "--min-sync-period=0")
    knft.wait_until_programmed()
    (worker,) = worker_processes(knft.process.pid)
    before = _changes(knft)
    os.kill(worker, signal.SIGSTOP)
    server.cluster.put("services", service("another", 10))
    knft.wait_until(lambda: _changes(knft) > before)
    # knft does not report that a sync waits for the library, so the test waits a fixed time.
    time.sleep(0.5)
    if stuck == "a signal":
        knft.process.terminate()
        assert knft.wait_exit() == 0
    else:
        server.cluster.remove("nodes", NODE, "")
        assert knft.wait_exit() == 1
        assert "was deleted" in knft.log_text()


def _changes(knft: ApiServerKnft) -> float:
    name = "kubeproxy_sync_proxy_rules_service_changes_total "
    lines = knft.http_get(10249, "/metrics")[1].splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_signal_during_the_start(namespace: Namespace, tmp_path: Path) -> None:
    """Also as PID 1 of a container, for which the kernel ignores signals without a handler."""
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\ntouch $0.started\nexec sleep 60\n")
    plugin.chmod(0o755)
    kubeconfig = tmp_path / "kubeconfig"
    execute = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    content = kubeconfig_for("http://127.0.0.1:1")
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
    namespace.call_at_close(process.kill)
    wait_until((tmp_path / "plugin.started").exists, "the plugin does not start")
    (first,) = child_processes(process.pid)
    os.kill(first, signal.SIGTERM)
    assert process.wait(TIMEOUT) == 128 + signal.SIGTERM


def test_signal_during_the_start_ends_the_plugin_and_leaves_no_files(namespace: Namespace, tmp_path: Path) -> None:
    plugin, temporary, started = tmp_path / "plugin", tmp_path / "temporary", tmp_path / "started"
    temporary.mkdir()
    plugin.write_text(
        "#!/bin/sh\nfolder=$(mktemp -d)\ntrap 'rmdir $folder; exit' TERM\n"
        f"echo $$ > {started}.new; mv {started}.new {started}\nwhile :; do sleep 0.01; done\n"
    )
    plugin.chmod(0o755)
    content = kubeconfig_for("https://127.0.0.1:1")
    content["users"][0]["user"] = {"exec": {"apiVersion": PLUGIN_VERSION, "command": str(plugin)}}
    (tmp_path / "kubeconfig").write_text(json.dumps(content))
    command = [*KNFT, "run", f"--kubeconfig={tmp_path / 'kubeconfig'}", "--node=node-1"]
    process = namespace.popen(["env", f"TMPDIR={temporary}", *command])
    namespace.call_at_close(process.kill)
    wait_until(started.exists, "the plugin does not start")
    process.terminate()
    assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
    assert not list(temporary.iterdir())
    assert not Path("/proc", started.read_text().strip()).exists()
