"""Tests of the health server and the metrics server over real HTTP: pages, methods, bad requests, slow clients."""

import json
import logging
import re
import socket
import threading
from contextlib import ExitStack

import pytest

import knft
from knft.families import Family
from tests.serve.node import HEALTH, LOOPBACK, METRICS
from tests.serve.standalone import StartServers, wait_until_served
from tests.support.http_client import TIMEOUT_SECONDS, http_request, parse_response, send_and_receive
from tests.support.waiting import wait_until

NOT_FOUND = b"404 page not found\n"


def test_health_probes_over_http(start: StartServers) -> None:
    """Status, headers and bodies of /healthz and /livez."""
    servers = start()
    wait_until_served(HEALTH)
    health = servers.monitoring.health
    for family in Family:
        health.loop_started(family)
    answer = http_request(LOOPBACK, HEALTH, "/healthz")
    assert answer.status == 200
    assert answer.body == (
        b'{"lastUpdated":"2026-05-28T20:26:40Z","currentTime":"2026-05-28T20:26:40Z","nodeEligible":true,"healthy":true,'
        b'"status":{"IPv4":{"lastUpdated":"2026-05-28T20:26:40Z","healthy":true},'
        b'"IPv6":{"lastUpdated":"2026-05-28T20:26:40Z","healthy":true}}}'
    )
    assert answer.headers == {
        "content-type": "application/json",
        "x-content-type-options": "nosniff",
        "date": "Thu, 28 May 2026 20:26:40 GMT",
        "content-length": str(len(answer.body)),
        "connection": "close",
    }
    assert b"nodeEligible" not in http_request(LOOPBACK, HEALTH, "/livez").body
    servers.is_eligible = lambda: False
    assert [http_request(LOOPBACK, HEALTH, path).status for path in ("/healthz", "/livez")] == [503, 200]
    servers.is_eligible = lambda: True
    health.sync_queued(Family.IPV6)
    servers.clock.pass_time(60)  # Two default syncPeriods.
    late = http_request(LOOPBACK, HEALTH, "/livez")
    assert late.status == 503
    assert json.loads(late.body)["status"]["IPv6"]["healthy"] is False
    assert late.headers["content-type"] == "application/json"


def test_metrics_server_pages(start: StartServers) -> None:
    document = {"kind": "KubeProxyConfiguration", "mode": "nftables", "clusterCIDR": "10.244.0.0/16"}
    servers = start(document=document)
    wait_until_served(METRICS)
    servers.clock.pass_time(3725)
    text = "text/plain; charset=utf-8"
    answers = {
        path: http_request(LOOPBACK, METRICS, path)
        for path in ("/healthz", "/proxyMode", "/configz", "/statusz", "/flagz")
    }
    assert {answer.status for answer in answers.values()} == {200}
    assert {answer.headers["x-content-type-options"] for answer in answers.values()} == {"nosniff"}
    assert answers["/healthz"].body == b"ok"
    assert (answers["/proxyMode"].body, answers["/proxyMode"].headers["content-type"]) == (b"nftables", text)
    assert answers["/configz"].headers["content-type"] == "application/json"
    assert json.loads(answers["/configz"].body) == {"kubeproxy.config.k8s.io": document}
    status = answers["/statusz"].body.decode()
    assert status.startswith("knft statusz\n")
    assert "\nStarted: Thu May 28 20:26:40 UTC 2026\nUp: 1 hr 02 min 05 sec\n" in status
    assert f"\nBinary version: {knft.__version__}\n" in status
    assert "\nPaths: /configz /flagz /healthz /metrics /metrics/slis /proxyMode /statusz\n" in status
    assert answers["/flagz"].body.decode().endswith("\n\nconfig=/etc/knft.yaml\nv=2\n")
    metrics = http_request(LOOPBACK, METRICS, "/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"\n# TYPE process_resident_memory_bytes gauge\n" in metrics.body


def test_profiling_serves_stacks(start: StartServers) -> None:
    """Stacks of threads replace Go's profiles."""
    start(profiling=True, healthz_bind_address="")
    wait_until_served(METRICS)
    stacks = http_request(LOOPBACK, METRICS, "/debug/stacks")
    assert stacks.status == 200
    assert re.search(r"^MainThread:\n  File ", stacks.body.decode(), re.MULTILINE)
    assert http_request(LOOPBACK, METRICS, "/debug/pprof/").status == 404


def test_no_stacks_without_profiling(start: StartServers) -> None:
    start()
    wait_until_served(METRICS)
    assert http_request(LOOPBACK, METRICS, "/debug/stacks").status == 404


@pytest.mark.parametrize(("port", "path"), [(HEALTH, "/healthz"), (METRICS, "/metrics")])
def test_only_get_and_head_are_allowed(start: StartServers, port: int, path: str) -> None:
    """HEAD returns the headers of GET; other methods get 405, unknown paths 404."""
    start()
    wait_until_served(port)
    got, head = http_request(LOOPBACK, port, path), http_request(LOOPBACK, port, path, "HEAD")
    assert (head.status, head.body) == (got.status, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert int(head.headers["content-length"]) > 100
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        refused = http_request(LOOPBACK, port, path, method)
        assert (refused.status, refused.body) == (405, b"405 method not allowed\n")
        assert refused.headers["allow"] == "GET, HEAD"
    for missing in ("/", f"{path}/", path.upper(), "/../etc/passwd", f"/x{path}", "/favicon.ico"):
        answer = http_request(LOOPBACK, port, missing)
        assert (answer.status, answer.body) == (404, NOT_FOUND)


@pytest.mark.parametrize(("path"), ["/metrics", "/livez", "/configz", "/statusz"])
def test_health_server_serves_only_its_own_pages(start: StartServers, path: str) -> None:
    start()
    wait_until_served(HEALTH)
    wait_until_served(METRICS)
    ours = http_request(LOOPBACK, HEALTH, path).status == 200, http_request(LOOPBACK, METRICS, path).status == 200
    assert ours == ((True, False) if path == "/livez" else (False, True))


def test_responses_do_not_reveal_the_implementation(start: StartServers) -> None:
    start()
    wait_until_served(HEALTH)
    requests = (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"?\r\n\r\n")
    for request in requests:
        assert not re.search(rb"python|asyncio|server:", send_and_receive(LOOPBACK, HEALTH, request), re.IGNORECASE)


GARBAGE = {
    "nonsense": (bytes(byte for byte in range(256) if byte != ord("\n")) + b"\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "no version": (b"GET /healthz\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "a header that never ends": (b"GET /healthz HTTP/1.1\r\nA: " + b"a" * 20_000, 431),
    "headers that never end": (b"GET /healthz HTTP/1.1\r\n" + b"A: a\r\n" * 5000, 431),
    "a long head in one piece": (b"GET /healthz HTTP/1.1\r\n" + b"A: a\r\n" * 3000 + b"\r\n", 431),
    "a long path": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
    "with a body": (b"GET /healthz HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"b" * 100_000, 200),
    "two at once": (b"GET /healthz HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\n\r\n", 200),
    "after empty lines": (b"\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n", 200),
    "HTTP/1.0": (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_malformed_requests_get_a_response(start: StartServers, what: str) -> None:
    start()
    wait_until_served(HEALTH)
    sent, status = GARBAGE[what]
    assert parse_response(send_and_receive(LOOPBACK, HEALTH, sent)).status == status
    assert http_request(LOOPBACK, HEALTH, "/healthz").status == 200


def test_request_sent_byte_by_byte(start: StartServers) -> None:
    start()
    wait_until_served(HEALTH)
    with socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n":
            connection.sendall(bytes([byte]))
        received = b""
        while piece := connection.recv(65536):
            received += piece
    assert parse_response(received).status == 200


def test_silent_clients_are_disconnected(start: StartServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends nothing, or half a request, or does not read the response."""
    monkeypatch.setattr("knft.serve.connection.REQUEST_SECONDS", 0.05)
    servers = start()
    wait_until_served(METRICS)
    for begun in (b"", b"GET /metrics HTTP/1.1\r\nA:"):
        assert send_and_receive(LOOPBACK, METRICS, begun) == b""
    with socket.create_connection((LOOPBACK, METRICS), TIMEOUT_SECONDS) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: connection.recv(1, socket.MSG_PEEK) != b"")
        wait_until(lambda: not len(servers.monitoring._thread.connections))


def test_slow_probe_is_answered_although_others_connect(start: StartServers) -> None:
    """While file descriptors are free, also if the other connections come from the same address."""
    start()
    wait_until_served(HEALTH)
    with ExitStack() as stack:
        probe = stack.enter_context(socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS))
        for _ in range(200):
            stack.enter_context(socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS))
        assert http_request(LOOPBACK, HEALTH, "/livez").status == 200  # the server has accepted all before
        probe.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert probe.recv(12) == b"HTTP/1.1 200"


def test_slow_probe_is_answered_although_another_client_uses_all_connections(start: StartServers) -> None:
    servers = start()
    wait_until_served(HEALTH)
    servers.monitoring._thread.connections.limit = 50
    with ExitStack() as stack:
        probe = stack.enter_context(socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS))
        for _ in range(200):
            client = socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS, source_address=("127.0.0.2", 0))
            stack.enter_context(client)
        assert http_request(LOOPBACK, HEALTH, "/livez").status == 200
        assert len(servers.monitoring._thread.connections) <= 50
        probe.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert probe.recv(12) == b"HTTP/1.1 200"


def test_slow_clients_use_no_threads_and_do_not_block_others(
    start: StartServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more idle connections than allowed, the oldest are closed, and a health check is answered."""
    monkeypatch.setattr("knft.serve.connection.REQUEST_SECONDS", 10 * TIMEOUT_SECONDS)
    servers = start()
    wait_until_served(HEALTH)
    servers.monitoring._thread.connections.limit = 50
    before = threading.active_count()
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS)) for _ in range(120)]
        for connection in slow[-50:]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nA")
        for _ in range(60):
            assert http_request(LOOPBACK, HEALTH, "/livez").status == 200
        assert threading.active_count() == before
        assert {connection.recv(1) for connection in slow[:60]} == {b""}


def test_client_that_keeps_sending_is_disconnected(start: StartServers) -> None:
    start()
    wait_until_served(HEALTH)
    endless = b"GET /livez HTTP/1.1\r\n\r\n" + b"x" * (1 << 26)
    with socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS) as connection, pytest.raises(ConnectionError):
        connection.sendall(endless)


def test_failing_page_is_logged_and_server_continues(start: StartServers, caplog: pytest.LogCaptureFixture) -> None:
    servers = start()
    wait_until_served(HEALTH)

    def broken() -> bool:
        msg = "a mistake"
        raise ZeroDivisionError(msg)

    servers.is_eligible = broken
    with caplog.at_level(logging.ERROR, "knft"):
        answer = http_request(LOOPBACK, HEALTH, "/healthz")
    assert (answer.status, answer.body) == (500, b"500 internal server error\n")
    assert caplog.messages == ["health server: unexpected error while serving '/healthz'; please report this"]
    assert http_request(LOOPBACK, HEALTH, "/livez").status == 200
