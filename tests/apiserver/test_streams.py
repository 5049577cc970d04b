"""Connections that hang, are cut in silence, or are being waited for when knft ends; and servers that are away."""

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

from knft.apiserver.connection import Connection
from knft.apiserver.wire import Timing
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError
from tests.apiserver.answers import HUNG, hang, nobody_there, stream_raw
from tests.apiserver.cluster import Cluster, service
from tests.apiserver.following import QUICK, SHORT, following, until
from tests.apiserver.server import ApiServer, Handler
from tests.support.lab.namespace import Namespace

NEVER = Timing(connect=10 * HUNG, answer=10 * HUNG, idle=1000, interval=1000, unacknowledged=10000)
"""No timeout of these ends a test."""
BRIEF_WATCHES = msgspec.structs.replace(SHORT, shortest_watch=1.0, longest_watch=1.0, grace=0.3)


def one() -> Cluster:
    cluster = Cluster()
    cluster.put("services", service("web", 1))
    return cluster


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")


@pytest.mark.parametrize("waiting_for", ["an answer", "an event", "the rest of a list"])
def test_what_is_waited_for_ends_when_knft_does(waiting_for: str) -> None:
    with ApiServer(one()) as server:
        if waiting_for == "an answer":
            server.demand("", hang, times=100)
        elif waiting_for == "the rest of a list":
            server.demand("", stream_raw(b'{"type":"ADD', then="hang"), times=100)
        with following(server, timing=NEVER) as it:
            server.wait_for("stream services")
            it.stop.set()
            assert it.source.join(HUNG)
            assert not it.source.wait_synced(HUNG) or waiting_for == "an event"


def test_nothing_is_asked_after_the_end() -> None:
    with ApiServer(one()) as server:
        connection = Connection(ClientSettings(server=server.url))
        connection.close()
        with pytest.raises(ClusterError, match="knft is ending"):
            connection.request("GET", "/api/v1/services")
        assert not server.asked


def test_a_watch_that_hangs_is_begun_anew() -> None:
    with ApiServer(one()) as server:
        server.streams_lists = False
        server.demand("watch services", stream_raw(then="hang"))
        with following(server, times=BRIEF_WATCHES) as it:
            assert it.source.wait_synced(HUNG)
            server.wait_for("watch services", 2)
            server.cluster.put("services", service("later", 2))
            it.mirror.wait_names("web", "later")


def test_a_watch_in_which_nothing_comes_any_more_is_begun_anew() -> None:
    """The watch itself would go on for five minutes."""
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"200"}}}\n'

    def falls_silent(handler: Handler, _: object) -> bool:
        handler.begin_stream()
        for _ in range(20):
            handler.chunk(bookmark)
            time.sleep(0.1)
        return hang(handler, _)  # type: ignore[arg-type]

    with ApiServer(one()) as server:
        server.streams_lists = False
        server.demand("watch services", falls_silent)
        with following(server, times=msgspec.structs.replace(SHORT, regular=1.0)) as it:
            assert it.source.wait_synced(HUNG)
            server.wait_for("watch services", 2)


@contextmanager
def paused_at_will() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.apiserver"]
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


def test_a_server_that_is_paused_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with paused_at_will() as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        put(process, "web")
        with following(url, times=BRIEF_WATCHES, timing=msgspec.structs.replace(QUICK, answer=0.5)) as it:
            it.mirror.wait_names("web")
            os.kill(process.pid, signal.SIGSTOP)
            it.until(lambda: lines(caplog, "does not answer in time"), "a warning")
            put(process, "later")
            assert it.mirror.names() == {"web"}
            os.kill(process.pid, signal.SIGCONT)
            it.mirror.wait_names("web", "later")
            it.until(lambda: lines(caplog, "followed again"), "it is back")
    assert len(lines(caplog, "cannot be followed")) == len(lines(caplog, "followed again"))


def test_a_server_that_is_away_leaves_things_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    cluster = one()
    server = ApiServer(cluster)
    port = server.server_port
    with following(server.url) as it:
        assert it.source.wait_synced(HUNG)
        server.close()
        it.until(lambda: len(it.stop.of("services")) >= 8, "eight tries")
        assert it.mirror.names() == {"web"}
        assert len(it.mirror.changes) == 1
        assert len(lines(caplog, "; rules stay as they are")) == 1
        assert it.source.trouble("services").endswith("connection refused")
        cluster.put("services", service("later", 2))
        with ApiServer(cluster, port=port) as again:
            it.mirror.wait_names("web", "later")
            it.until(lambda: lines(caplog, "followed again"), "it is back")
            # Nothing is listed again.
            assert again.forms()[0] == "watch"
            assert it.source.trouble("services") == ""
    assert len(lines(caplog, "followed again")) == 1


def test_a_name_that_cannot_be_resolved_and_an_address_where_nobody_is(caplog: pytest.LogCaptureFixture) -> None:
    with following("http://no-such-host.invalid:6443") as it:
        it.until(lambda: lines(caplog, "no-such-host.invalid:6443: its name cannot be resolved"), "a warning")
    with nobody_there() as url, following(url) as it:
        it.until(lambda: lines(caplog, f"{url}: connection refused"), "a warning")


@pytest.mark.kernel
def test_a_connection_that_is_half_open_is_found_out() -> None:
    """All packets are lost both ways, and nobody says so: only probes find out, long before the watch is over."""
    namespace = Namespace.create("half-open")
    try:
        namespace.run(["ip", "link", "set", "lo", "up"])
        with namespace.entered(), ApiServer(one()) as server, following(server) as it:
            assert it.source.wait_synced(HUNG)
            drop = f"tcp dport {server.server_port} drop; tcp sport {server.server_port} drop;"
            rules = f"table inet lost {{ chain in {{ type filter hook input priority 0; {drop} }}; }}"
            namespace.run(["nft", "-f", "-"], stdin=rules)
            server.cluster.put("services", service("later", 2))
            # A pause tells that the connection counts as dead; requests then end in timeouts.
            it.until(lambda: len(it.stop.of("services")) >= 2, "it is found out")
            assert it.mirror.names() == {"web"}
            namespace.run(["nft", "delete", "table", "inet", "lost"])
            it.mirror.wait_names("web", "later")
            assert server.forms().count("stream") == 1
    finally:
        namespace.close()


def test_the_options_of_every_connection() -> None:
    with ApiServer(one()) as server:
        connection = Connection(ClientSettings(server=server.url))
        with connection.stream("/api/v1/services", [("watch", "true")]) as stream:
            wire = stream._tracked.wire
            assert wire is not None
            import socket

            timing = Timing()
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            found = wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert found == timing.unacknowledged * 1000 <= 60000
            idle, interval, count = (
                wire.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + interval * count <= 60
        connection.close()


def test_a_stream_may_be_quiet_once_everything_has_been_listed() -> None:
    with ApiServer(one()) as server, following(server) as it:
        assert it.source.wait_synced(HUNG)
        # Four watches, which end after 450 s as drawn, and count as hung half a minute later.
        it.until(lambda: {item.gettimeout() for item in it.connection._sockets._open} == {480.0}, "patience")


def test_an_error_that_nobody_expected_ends_everything() -> None:
    stop = threading.Event()

    def handle(_: object) -> None:
        msg = "a mistake"
        raise RuntimeError(msg)

    with ApiServer(one()) as server:
        from knft.apiserver.source import ClusterSource

        source = ClusterSource(Connection(ClientSettings(server=server.url)), "node-1", handle)
        source.start(stop)
        until(stop.is_set, "stop is set")
        assert source.join(HUNG)
        assert str(source.failure) == "a mistake"
        assert not source.wait_synced(HUNG)


def test_requests_are_held_to_their_rate() -> None:
    with ApiServer(one()) as server:
        connection = Connection(ClientSettings(server=server.url, qps=50, burst=2))
        for _ in range(7):
            connection.request("GET", "/api/v1/services")
        # Two at once, and five at 50 a second after that; a slow machine makes it longer, never shorter.
        assert server.asked[-1].when - server.asked[0].when >= 5 / 50 - 0.02
        connection.close()


def test_a_zipped_list() -> None:
    import gzip

    with ApiServer(one()) as server:
        data = gzip.compress(b'{"metadata":{"resourceVersion":"7"},"items":[]}')

        def zipped(handler: object, _: object) -> bool:
            handler.send_body(200, data, {"Content-Encoding": "gzip"})  # type: ignore[attr-defined]
            return True

        server.demand("list services", zipped)
        connection = Connection(ClientSettings(server=server.url))
        assert b'"7"' in connection.request("GET", "/api/v1/services")
        assert server.asked[0].headers["Accept-Encoding"] == "gzip"
        connection.close()
