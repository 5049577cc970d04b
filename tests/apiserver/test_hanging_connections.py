"""Connections that hang, are lost silently, or are in use at shutdown; and servers that are down."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest

from knft.apiserver.api_client import ApiClient
from knft.apiserver.sockets import Timeouts
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError
from tests.apiserver.running_source import SHORT_TIMEOUTS, SHORT_WATCH_TIMEOUTS, running_source, wait_until
from tests.support.fake_api.cluster import FakeCluster, service
from tests.support.fake_api.responses import TEST_TIMEOUT, never_respond, respond_stream, unused_address
from tests.support.fake_api.server import FakeApiServer, Handler
from tests.support.lab.namespace import Namespace

NEVER = Timeouts(
    connect=10 * TEST_TIMEOUT,
    response=10 * TEST_TIMEOUT,
    keepalive_idle=1000,
    keepalive_interval=1000,
    unacknowledged=10000,
)
"""Timeouts that no test reaches."""
BRIEF_WATCHES = msgspec.structs.replace(SHORT_WATCH_TIMEOUTS, min_watch=1.0, max_watch=1.0, idle_grace=0.3)


def one_service() -> FakeCluster:
    cluster = FakeCluster()
    cluster.put("services", service("web", 1))
    return cluster


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")


@pytest.mark.parametrize("waiting_for", ["an answer", "an event", "the rest of a list"])
def test_stop_ends_waiting_requests(waiting_for: str) -> None:
    with FakeApiServer(one_service()) as server:
        if waiting_for == "an answer":
            server.respond_next("", never_respond, times=100)
        elif waiting_for == "the rest of a list":
            server.respond_next("", respond_stream(b'{"type":"ADD', ending="hang"), times=100)
        with running_source(server, timeouts=NEVER) as run:
            server.wait_for_request("stream services")
            run.stop.set()
            assert run.source.join(TEST_TIMEOUT)
            assert not run.source.wait_all_listed(TEST_TIMEOUT) or waiting_for == "an event"


def test_closed_client_sends_nothing() -> None:
    with FakeApiServer(one_service()) as server:
        client = ApiClient(ClientSettings(server=server.url))
        client.close()
        with pytest.raises(ApiServerError, match="knft is shutting down"):
            client.request("GET", "/api/v1/services")
        assert not server.requests


def test_hanging_watch_is_restarted() -> None:
    with FakeApiServer(one_service()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_stream(ending="hang"))
        with running_source(server, watch_timeouts=BRIEF_WATCHES) as run:
            assert run.source.wait_all_listed(TEST_TIMEOUT)
            server.wait_for_request("watch services", 2)
            server.cluster.put("services", service("later", 2))
            run.changes.wait_names("web", "later")


def test_watch_without_bookmarks_is_restarted_early() -> None:
    """The watch itself would last five minutes."""
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"200"}}}\n'

    def send_bookmarks_for_two_seconds(handler: Handler, _: object) -> bool:
        handler.begin_stream()
        for _ in range(20):
            handler.chunk(bookmark)
            time.sleep(0.1)
        return never_respond(handler, _)  # type: ignore[arg-type]

    with FakeApiServer(one_service()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", send_bookmarks_for_two_seconds)
        with running_source(
            server, watch_timeouts=msgspec.structs.replace(SHORT_WATCH_TIMEOUTS, regular_idle=1.0)
        ) as run:
            assert run.source.wait_all_listed(TEST_TIMEOUT)
            server.wait_for_request("watch services", 2)


@contextmanager
def pausable_server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.fake_api"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def put(process: "subprocess.Popen[str]", name: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{name}\n")
    process.stdin.flush()


def test_watch_continues_after_the_server_is_paused(caplog: pytest.LogCaptureFixture) -> None:
    with pausable_server() as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        put(process, "web")
        with running_source(
            url, watch_timeouts=BRIEF_WATCHES, timeouts=msgspec.structs.replace(SHORT_TIMEOUTS, response=0.5)
        ) as run:
            run.changes.wait_names("web")
            os.kill(process.pid, signal.SIGSTOP)
            run.wait_until(lambda: lines(caplog, "did not answer in time"), "a warning")
            put(process, "later")
            assert run.changes.names() == {"web"}
            os.kill(process.pid, signal.SIGCONT)
            run.changes.wait_names("web", "later")
            run.wait_until(lambda: lines(caplog, "watching the API server again"), "the server is back")
    assert len(lines(caplog, "cannot watch the API server")) == len(lines(caplog, "watching the API server again"))


def test_objects_are_kept_while_the_server_is_down(caplog: pytest.LogCaptureFixture) -> None:
    cluster = one_service()
    server = FakeApiServer(cluster)
    port = server.server_port
    with running_source(server.url) as run:
        assert run.source.wait_all_listed(TEST_TIMEOUT)
        server.close()
        run.wait_until(lambda: len(run.stop.pauses_of("services")) >= 8, "eight tries")
        assert run.changes.names() == {"web"}
        assert len(run.changes.received) == 1
        assert len(lines(caplog, "; rules stay as they are")) == 1
        assert run.source.problem("services").endswith("connection refused")
        cluster.put("services", service("later", 2))
        with FakeApiServer(cluster, port=port) as again:
            run.changes.wait_names("web", "later")
            run.wait_until(lambda: lines(caplog, "watching the API server again"), "the server is back")
            # There is no new list.
            assert again.kinds_of_requests()[0] == "watch"
            assert run.source.problem("services") == ""
    assert len(lines(caplog, "watching the API server again")) == 1


def test_unresolvable_name_and_refused_connection_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with running_source("http://no-such-host.invalid:6443") as run:
        run.wait_until(lambda: lines(caplog, "no-such-host.invalid:6443: cannot resolve the host name"), "a warning")
    with unused_address() as url, running_source(url) as run:
        run.wait_until(lambda: lines(caplog, f"{url}: connection refused"), "a warning")


@pytest.mark.kernel
def test_half_open_connection_is_detected() -> None:
    """All packets are dropped in both directions: only keepalive probes detect it before the watch ends."""
    namespace = Namespace.create("half-open")
    try:
        namespace.run(["ip", "link", "set", "lo", "up"])
        with namespace.entered(), FakeApiServer(one_service()) as server, running_source(server) as run:
            assert run.source.wait_all_listed(TEST_TIMEOUT)
            drop = f"tcp dport {server.server_port} drop; tcp sport {server.server_port} drop;"
            rules = f"table inet lost {{ chain in {{ type filter hook input priority 0; {drop} }}; }}"
            namespace.run(["nft", "-f", "-"], stdin=rules)
            server.cluster.put("services", service("later", 2))
            # A delay shows that the connection has failed; later requests time out.
            run.wait_until(lambda: len(run.stop.pauses_of("services")) >= 2, "the failure is detected")
            assert run.changes.names() == {"web"}
            namespace.run(["nft", "delete", "table", "inet", "lost"])
            run.changes.wait_names("web", "later")
            assert server.kinds_of_requests().count("stream") == 1
    finally:
        namespace.close()


def test_connections_have_keepalive_and_user_timeout() -> None:
    with FakeApiServer(one_service()) as server:
        connection = ApiClient(ClientSettings(server=server.url))
        with connection.stream("/api/v1/services", [("watch", "true")]) as stream:
            raw_socket = stream._tracked.raw_socket
            assert raw_socket is not None
            import socket

            timing = Timeouts()
            assert raw_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            found = raw_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert found == timing.unacknowledged * 1000 <= 60000
            idle, interval, count = (
                raw_socket.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + interval * count <= 60
        connection.close()


def test_watch_socket_timeout_exceeds_the_server_timeout() -> None:
    with FakeApiServer(one_service()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(TEST_TIMEOUT)
        # The server ends each of the four watches after 450 s; knft considers a watch hung 30 s later.
        run.wait_until(
            lambda: {item.gettimeout() for item in run.client._sockets._open} == {480.0},
            "the timeout of each socket",
        )


def test_unexpected_error_stops_the_source() -> None:
    stop, failures = threading.Event(), list[Exception]()

    def handle(_: object) -> None:
        msg = "bug for the test"
        raise RuntimeError(msg)

    with FakeApiServer(one_service()) as server:
        from knft.apiserver.source import ApiServerSource

        source = ApiServerSource(
            ApiClient(ClientSettings(server=server.url)), "node-1", handle, on_failure=failures.append
        )
        source.start(stop)
        wait_until(stop.is_set, "stop is set")
        assert source.join(TEST_TIMEOUT)
        assert [str(error) for error in failures] == ["bug for the test"]
        assert not source.wait_all_listed(TEST_TIMEOUT)


def test_requests_obey_qps_and_burst() -> None:
    with FakeApiServer(one_service()) as server:
        client = ApiClient(ClientSettings(server=server.url, qps=50, burst=2))
        for _ in range(7):
            client.request("GET", "/api/v1/services")
        # Two requests at once, then five at 50 per second; a slow machine takes longer.
        assert server.requests[-1].received_at - server.requests[0].received_at >= 5 / 50 - 0.02
        client.close()


def test_gzip_response() -> None:
    import gzip

    with FakeApiServer(one_service()) as server:
        data = gzip.compress(b'{"metadata":{"resourceVersion":"7"},"items":[]}')

        def zipped(handler: object, _: object) -> bool:
            handler.send_body(200, data, {"Content-Encoding": "gzip"})  # type: ignore[attr-defined]
            return True

        server.respond_next("list services", zipped)
        client = ApiClient(ClientSettings(server=server.url))
        assert b'"7"' in client.request("GET", "/api/v1/services")
        assert server.requests[0].headers["Accept-Encoding"] == "gzip"
        client.close()
