"""Credential plugins: how often they run, their privileges, their output, their timeout, and their end."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from knft.apiserver import transport
from knft.apiserver.api_client import ApiClient
from knft.apiserver.sockets import Timeouts
from knft.errors import ApiServerError, UsageError
from tests.apiserver.kubeconfigs import (
    MULTI_LINE_ERROR,
    PLUGIN_VERSION,
    TWO_LINE_TOKEN,
    insecure_settings,
    one_service_cluster,
    write_kubeconfig,
)
from tests.apiserver.log_records import warnings
from tests.apiserver.running_source import running_source, wait_until
from tests.support.fake_api.responses import respond_status
from tests.support.fake_api.server import FakeApiServer, Handler
from tests.support.processes import is_running

pytestmark = pytest.mark.usefixtures("capture_info_log")


def test_renewed_token_with_two_lines_is_refused(tmp_path: Path) -> None:
    """The plugin runs again because its token has expired."""
    status = {"token": TWO_LINE_TOKEN, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    (tmp_path / "later").write_text(
        json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status})
    )
    status["token"] = "one"  # noqa: S105 - of a test
    (tmp_path / "now").write_text(
        json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status})
    )
    with FakeApiServer(one_service_cluster()) as server:
        user = {"exec": {"apiVersion": PLUGIN_VERSION, "command": "cat", "args": [str(tmp_path / "now")]}}
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user=user)
        client = ApiClient(insecure_settings(path))
        (tmp_path / "later").rename(tmp_path / "now")
        with pytest.raises(ApiServerError, match=f"user.exec: 'cat': {MULTI_LINE_ERROR}") as raised:
            client.request("GET", "/api/v1/services")
        assert "-secret" not in str(raised.value)
        client.close()


def test_plugin_runs_once_for_several_refused_requests(tmp_path: Path) -> None:
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t%s"}}
    script = f"cd {tmp_path}; echo >> runs; sleep 0.3; printf '{json.dumps(credential)}' $(wc -l < runs)"
    with FakeApiServer(one_service_cluster()) as server:
        user = {"exec": {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", script]}}
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user=user)
        client = ApiClient(insecure_settings(path, qps=0))
        server.required_bearer = "t2"
        all_asked = threading.Barrier(4)

        def refused(handler: Handler, _: object) -> bool:
            all_asked.wait(20)
            handler.send_status(401, "who?", "Unauthorized")
            return True

        server.respond_next("", refused, times=4)
        threads = [threading.Thread(target=client.request, args=["GET", "/api/v1/services"]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert [request.headers["Authorization"] for request in server.requests] == ["Bearer t1"] * 4 + [
            "Bearer t2"
        ] * 4
        client.close()


CREDENTIAL = json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}})


def shell_plugin(folder: Path, script: str, env: tuple[tuple[str, str], ...] = ()) -> Path:
    """Write a kubeconfig whose plugin is a shell script that runs in ``folder``."""
    variables = [{"name": name, "value": value} for name, value in env]
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", script], "env": variables}
    return write_kubeconfig(folder, user={"exec": plugin})


def test_plugin_has_no_capabilities(tmp_path: Path) -> None:
    """Also the first, which runs before knft drops its own; these tests run as root."""
    path = shell_plugin(tmp_path, f"cat /proc/self/status > status; printf '%s' '{CREDENTIAL}'")
    ApiClient(insecure_settings(path)).close()
    status = status_fields(tmp_path / "status")
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    own = status_fields(Path("/proc/self/status"))
    assert own["CapEff"] == own["CapBnd"] != "0" * 16


@pytest.mark.parametrize("before", [(), ("setpriv", "--bounding-set=-setpcap", "--inh-caps=-setpcap")])
def test_later_plugin_has_no_capabilities(tmp_path: Path, before: tuple[str, ...]) -> None:
    """When knft has CAP_NET_ADMIN only, or cannot change the bounding set, a plugin does not regain capabilities."""
    path = shell_plugin(tmp_path, f"cat /proc/self/status > status; printf '%s' '{CREDENTIAL}'")
    code = (
        "from knft.apiserver.api_client import ApiClient\n"
        "from knft.configuration.settings import ClientSettings\n"
        "from knft.kernel.privileges import drop_privileges\n"
        f"drop_privileges()\nApiClient(ClientSettings(kubeconfig={str(path)!r})).close()"
    )
    subprocess.run([*before, sys.executable, "-c", code], check=True)
    status = status_fields(tmp_path / "status")
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"


def status_fields(file: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in file.read_text().splitlines() if ":\t" in line)


def test_plugin_has_a_session_and_no_terminal(tmp_path: Path) -> None:
    path = shell_plugin(tmp_path, f"cat > input; read -r line < /proc/$$/stat; echo $line > stat; echo '{CREDENTIAL}'")
    ApiClient(insecure_settings(path)).close()
    process, after_name = (tmp_path / "stat").read_text().split(" ", 1)
    _state, _parent, group, session = after_name.rpartition(")")[2].split()[:4]
    assert group == session == process
    assert (tmp_path / "input").read_bytes() == b""


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        (r"printf '\033[31mred\033[0m \033]0;title\007\r\bbell\n' >&2; exit 1", "exit status 1: red \ufffdbell"),
        ("echo 'login of admin failed: password=hunter2' >&2; exit 1", "login of admin failed: password=[hidden]"),
        ("""echo '{"client_secret": "hunter 2", "code": 3}' >&2; exit 1""", '{"client_secret": [hidden], "code": 3}'),
        ("echo get https://me:hunter2@example.com >&2; exit 1", "get https://[hidden]@example.com"),
        ("echo $SECRET >&2; exit 1", "exit status 1: [hidden]"),
        ("printf -- '-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\n' >&2; exit 1", "exit status 1: [hidden]"),
        ("head -c 5000000 /dev/zero | tr '\\0' x >&2; exit 1", f"exit status 1: {'x' * 285}..."),
        ("head -c 5000000 /dev/zero", "it printed more than 1048576 bytes"),
        ("yes >&2", "it printed more than 16777216 bytes"),
        ("echo no JSON", "JSON is malformed: invalid character (byte 4)"),
    ],
)
def test_output_of_a_failed_plugin_is_sanitized(tmp_path: Path, script: str, shown: str) -> None:
    path = shell_plugin(tmp_path, script, env=(("SECRET", "hunter2-hunter2"), ("MODE", "red")))
    with pytest.raises(UsageError) as raised:
        ApiClient(insecure_settings(path))
    text = str(raised.value)
    assert text.endswith(shown)
    assert text.isprintable()
    assert "hunter" not in text


def test_plugin_can_remove_its_files_before_it_is_killed(tmp_path: Path) -> None:
    script = "touch temporary; trap 'rm temporary; exit' TERM; while :; do sleep 0.01; done"
    path = shell_plugin(tmp_path, script)
    with pytest.raises(UsageError, match=r"did not finish within 0\.5 s"):
        ApiClient(insecure_settings(path), timeouts=Timeouts(plugin=0.5))
    assert not (tmp_path / "temporary").exists()


def slow_plugin(folder: Path, url: str) -> Path:
    """Write a kubeconfig with a plugin that records each run and then waits for the file ``go``."""
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}}
    script = f"echo >> runs; while [ ! -e go ]; do sleep 0.05; done; printf '%s' '{json.dumps(credential)}'"
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", f"cd {folder}; {script}"]}
    return write_kubeconfig(folder, cluster={"server": url}, user={"exec": plugin})


def hung_plugin(folder: Path, url: str) -> Path:
    """Write a kubeconfig with a plugin that gives a token, or hangs with a child if the file ``hang`` exists."""
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}}
    once = f"[ -e hang ] || {{ printf '%s' '{json.dumps(credential)}'; exit; }}"
    # Both processes ignore SIGTERM.
    hang = "trap '' TERM; sleep 1000 & echo $$ $! >> left; wait"
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", f"cd {folder}; {once}; {hang}"]}
    return write_kubeconfig(folder, cluster={"server": url}, user={"exec": plugin})


def running_plugin_processes(folder: Path) -> list[int]:
    """Return the processes of hanging plugins that still run."""
    return [int(word) for word in (folder / "left").read_text().split() if is_running(int(word))]


def kill_plugin_processes(folder: Path) -> None:
    for process in running_plugin_processes(folder):
        os.kill(process, signal.SIGKILL)


def test_plugin_timeout_kills_its_processes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The plugin and its children are killed, the previous token stays in use, and the plugin runs again later."""
    with FakeApiServer(one_service_cluster()) as server:
        path, timing = hung_plugin(tmp_path, server.url), Timeouts(plugin=0.5)
        try:
            (tmp_path / "hang").touch()
            with pytest.raises(UsageError, match=r"user\.exec: 'sh' did not finish within 0.5 s"):
                ApiClient(insecure_settings(path), timeouts=timing)
            wait_until(lambda: not running_plugin_processes(tmp_path), "no process is left")
            (tmp_path / "hang").unlink()
            client = ApiClient(insecure_settings(path), timeouts=Timeouts(plugin=20))
            client._transport._plugin_runner._timeout = 0.5
            (tmp_path / "hang").touch()
            for _ in range(2):
                server.respond_next("", respond_status(401, "who?"))
                client.request("GET", "/api/v1/services")
                wait_until(lambda: not running_plugin_processes(tmp_path), "no process is left")
                wait_until(lambda: not unreaped_plugins(), "no thread waits for the plugin")
            assert len((tmp_path / "left").read_text().splitlines()) == 3
            assert len([line for line in warnings(caplog) if "stays in use" in line]) == 1
            client.close()
        finally:
            kill_plugin_processes(tmp_path)


def test_requests_use_the_previous_configuration_while_a_plugin_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubeconfig is replaced; knft would wait for the plugin for a minute."""
    monkeypatch.setattr(transport, "RENEWAL_SECONDS", 0.1)
    with FakeApiServer(one_service_cluster()) as server:
        path = hung_plugin(tmp_path, server.url)
        try:
            client = ApiClient(insecure_settings(path))
            (tmp_path / "hang").touch()
            path.write_text(path.read_text().replace("home", "new"))
            client.request("GET", "/api/v1/services")
            wait_until((tmp_path / "left").exists, "the plugin runs")
            client.request("GET", "/api/v1/services")
            assert running_plugin_processes(tmp_path)
            client.close()
            wait_until(lambda: not running_plugin_processes(tmp_path), "no process is left")
        finally:
            kill_plugin_processes(tmp_path)


def unreaped_plugins() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "plugin"]


def test_close_kills_a_hanging_plugin(tmp_path: Path) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        path = hung_plugin(tmp_path, server.url)
        try:
            client = ApiClient(insecure_settings(path))
            (tmp_path / "hang").touch()
            server.respond_next("", respond_status(401, "who?"))
            threading.Timer(0.5, client.close).start()
            with pytest.raises(ApiServerError, match="knft is shutting down"):
                client.request("GET", "/api/v1/services")
            wait_until(lambda: not running_plugin_processes(tmp_path), "no process is left")
        finally:
            kill_plugin_processes(tmp_path)


def test_plugin_does_not_delay_shutdown(tmp_path: Path) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        path = slow_plugin(tmp_path, server.url)
        (tmp_path / "go").touch()
        try:
            with running_source(server, settings=insecure_settings(path, qps=0)) as run:
                assert run.source.wait_all_listed(20)
                (tmp_path / "go").unlink()
                runs = len((tmp_path / "runs").read_text())
                server.respond_next("watch", respond_status(401, "who?"), times=100)
                server.end_streams()
                run.wait_until(lambda: len((tmp_path / "runs").read_text()) > runs, "the plugin runs again")
                run.stop.set()
                # The plugin's own timeout is a minute.
                assert run.source.join(20)
        finally:
            (tmp_path / "go").touch()
