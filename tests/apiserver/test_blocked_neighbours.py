"""``knft run`` while everything outside blocks for a minute: syncs and health checks go on, and SIGTERM ends it."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server_knft import KEEP_HOST_SYSCTLS, NODE, kubeconfig_for
from tests.support.blocked_pipe import BlockedPipe
from tests.support.fake_api.cluster import endpoint_slice, service
from tests.support.fake_api.responses import ReceivedRequest
from tests.support.fake_api.server import FakeApiServer, Handler
from tests.support.http_client import http_request
from tests.support.lab.namespace import Namespace
from tests.support.processes import is_running
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel

BLOCKED_SECONDS = 60
STREAM_SECONDS = 7
"""Seconds between the ends of all watches."""
CLIENTS_PER_CHANGE = 5
MAX_CLIENTS = 10 * 4 * CLIENTS_PER_CHANGE
HEALTH_PORT, METRICS_PORT, SERVICE_HEALTH_PORT = 10256, 10249, 32100

# A small queue, so that a minute of log lines overflows it; and an exit that does not end if it waits for the log.
KNFT = (
    "from knft.app import log_writer; log_writer.MAX_QUEUED_BYTES = 4096;"
    "from knft.cli import log_handler; log_handler.EXIT_SECONDS = 10 * 3600;"
    "from knft.cli.main import main; main()"
)


def _never_respond(handler: Handler, _: ReceivedRequest) -> bool:
    handler.server.released.wait()
    handler.close_connection = True
    return True


def _write_kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig whose plugin first gives a token that is soon renewed, and then floods its output and hangs.

    knft renews a token five minutes before it expires.
    """
    expires = f"{datetime.now(UTC) + timedelta(minutes=5, seconds=15):%Y-%m-%dT%H:%M:%SZ}"
    status = {"token": "a-token-of-the-tests", "expirationTimestamp": expires}
    version = "client.authentication.k8s.io/v1"
    (folder / "credential").write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    first = "[ -e ran ] || { touch ran; cat credential; exit; }"
    again = "trap '' TERM; echo $$ >> hanging; head -c 1000000 /dev/zero >&2; while :; do sleep 1000; done"
    plugin = {
        "apiVersion": version,
        "command": "sh",
        "args": ["-c", f"cd {folder}; {first}; {again}"],
        "interactiveMode": "Never",
    }
    content = kubeconfig_for(url)
    content["users"][0]["user"] = {"exec": plugin}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


class Clients:
    """HTTP clients that send no request, or do not read the response. The oldest ones leave after some seconds."""

    def __init__(self) -> None:
        self._open: deque[socket.socket] = deque()

    def connect(self) -> None:
        """Connect some more clients to every server; the calling thread is in the servers' namespace."""
        for port, request in (
            (HEALTH_PORT, b""),
            (HEALTH_PORT, b"GET /livez HTTP/1.1\r\nHost:"),
            (METRICS_PORT, b"GET /metrics HTTP/1.1\r\n\r\n"),
            (SERVICE_HEALTH_PORT, b""),
        ):
            for _ in range(CLIENTS_PER_CHANGE):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                client.connect(("127.0.0.1", port))
                client.sendall(request)
                self._open.append(client)
        while len(self._open) > MAX_CLIENTS:
            self._open.popleft().close()

    def close(self) -> None:
        """Close all connections."""
        for client in self._open:
            client.close()


class BlockedKnft:
    """``knft run`` whose log nobody reads, whose API server accepts no events, and whose credential plugin hangs."""

    def __init__(self, namespace: Namespace, server: FakeApiServer, folder: Path) -> None:
        self._namespace = namespace
        self._server = server
        self._folder = folder
        self.log = BlockedPipe()
        server.respond_next("post", _never_respond, times=1000)
        command = [
            *(sys.executable, "-c", KNFT, "run", f"--kubeconfig={_write_kubeconfig(folder, server.url)}"),
            *(f"--hostname-override={NODE}", "--min-sync-period=0", "--nodeport-addresses=0.0.0.0/0", "-v2"),
            *(*KEEP_HOST_SYSCTLS, "--insecure-send-credentials-without-tls"),
        ]
        self.process = namespace.popen(command, stderr=self.log.writer)
        namespace.call_at_close(self._end)

    def _end(self) -> None:
        self._server.released.set()
        self.process.kill()
        self.process.wait()
        for process in self._hanging_plugins():
            os.kill(process, signal.SIGKILL)

    def _hanging_plugins(self) -> list[int]:
        with suppress(FileNotFoundError):
            return [int(word) for word in (self._folder / "hanging").read_text().split() if is_running(int(word))]
        return []

    def plugin_hangs(self) -> bool:
        """Whether a run of the credential plugin has not ended."""
        return bool(self._hanging_plugins())

    def commit_endpoint(self, address: str) -> None:
        """Change the endpoint of a Service, and wait until the kernel has it."""
        self._server.cluster.put("endpointslices", endpoint_slice("web-1", "web", address))
        self.wait_until(lambda: self._table_contains(address))

    def _table_contains(self, words: str) -> bool:
        return words in self._namespace.run(["nft", "list", "table", "ip", "knft"], check=False).stdout

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds, while the process runs."""

        def check() -> None:
            assert self.process.poll() is None, self.log.text()

        wait_until(condition, "no change was committed", check, interval=0.05)


def test_syncs_go_on_for_a_minute_while_everything_outside_blocks(
    namespace: Namespace, server: FakeApiServer, tmp_path: Path
) -> None:
    """Each change is committed although the log, events, scrapes, probes and the plugin have been blocked all along.

    The parties do not depend on each other, so one minute is enough for all of them.
    """
    server.cluster.put("services", _load_balancer())
    knft, clients = BlockedKnft(namespace, server, tmp_path), Clients()
    namespace.call_at_close(clients.close)
    committed_while_plugin_hung = 0
    for number in range(BLOCKED_SECONDS):
        # The pace of the changes; nothing is measured by it.
        next_change = time.monotonic() + 1
        server.cluster.put("services", service(f"invalid-{number}", 9, clusterIP="none of these"))
        knft.commit_endpoint(f"10.244.2.{number + 1}")
        with namespace.entered():
            assert http_request("127.0.0.1", HEALTH_PORT, "/livez").status == 200
            assert http_request("127.0.0.1", SERVICE_HEALTH_PORT).status == 503
            clients.connect()
        if knft.plugin_hangs():
            committed_while_plugin_hung += 1
        if number % STREAM_SECONDS == 0:
            # New watches need credentials.
            server.end_streams()
        time.sleep(max(0.0, next_change - time.monotonic()))
    assert committed_while_plugin_hung > BLOCKED_SECONDS / 2
    assert len([request for request in server.requests if request.kind == "post"]) > 1
    _check_that_the_log_reports_dropped_lines(namespace, knft)
    knft.log.fill()
    knft.commit_endpoint("10.244.3.1")
    knft.process.send_signal(signal.SIGTERM)
    assert knft.process.wait(TIMEOUT) == 0


def test_failure_ends_the_process_although_nobody_reads_its_reason(
    namespace: Namespace, server: FakeApiServer, tmp_path: Path
) -> None:
    knft = BlockedKnft(namespace, server, tmp_path)
    knft.commit_endpoint("10.244.2.1")
    server.cluster.remove("nodes", NODE, "")
    assert knft.process.wait(TIMEOUT) == 1


def _load_balancer() -> dict[str, Any]:
    return service(
        "balanced",
        8,
        type="LoadBalancer",
        externalTrafficPolicy="Local",
        healthCheckNodePort=SERVICE_HEALTH_PORT,
        ports=[{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 32000}],
    )


def _check_that_the_log_reports_dropped_lines(namespace: Namespace, knft: BlockedKnft) -> None:
    """The reader is back: the lines that were queued come first, then their number."""
    knft.wait_until(lambda: " log lines because standard error did not accept them" in knft.log.text())
    log = knft.log.text()
    (reported,) = re.findall(r"\] dropped (\d+) log lines", log)
    with namespace.entered():
        metrics = http_request("127.0.0.1", METRICS_PORT, "/metrics").body.decode()
    assert f"knft_log_lines_dropped_total {float(reported)}\n" in metrics
    assert log.index("] dropped") > log.index("] IPv4: full sync")
