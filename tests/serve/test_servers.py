"""The two bind addresses over real HTTP: pages, methods, bad requests, slow clients."""

import json
import logging
import os
import re
import socket
import threading
from contextlib import ExitStack

import pytest

import knft
from knft.model.names import Family
from tests.serve.alone import Start, served
from tests.serve.client import HANG, ask, exchange, parse
from tests.serve.node import HEALTH, LOOPBACK, METRICS, eventually

NOT_FOUND = b"404 page not found\n"


def test_probes_over_http(start: Start) -> None:
    """Codes, headers and bodies of both, through a life of a node."""
    running = start()
    served(HEALTH)
    health = running.serving.health
    for family in Family:
        health.looping(family)
    answer = ask(LOOPBACK, HEALTH, "/healthz")
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
    assert b"nodeEligible" not in ask(LOOPBACK, HEALTH, "/livez").body
    running.eligible = lambda: False
    assert [ask(LOOPBACK, HEALTH, path).status for path in ("/healthz", "/livez")] == [503, 200]
    running.eligible = lambda: True
    health.queued(Family.IPV6)
    running.clock.pass_time(60)  # Twice the default of syncPeriod.
    late = ask(LOOPBACK, HEALTH, "/livez")
    assert late.status == 503
    assert json.loads(late.body)["status"]["IPv6"]["healthy"] is False
    assert late.headers["content-type"] == "application/json"


def test_the_pages_of_the_metrics_server(start: Start) -> None:
    document = {"kind": "KubeProxyConfiguration", "mode": "nftables", "clusterCIDR": "10.244.0.0/16"}
    running = start(document=document)
    served(METRICS)
    running.clock.pass_time(3725)
    text = "text/plain; charset=utf-8"
    answers = {
        path: ask(LOOPBACK, METRICS, path) for path in ("/healthz", "/proxyMode", "/configz", "/statusz", "/flagz")
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
    metrics = ask(LOOPBACK, METRICS, "/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"\n# TYPE process_resident_memory_bytes gauge\n" in metrics.body


def test_a_page_of_stacks_stands_for_profiles(start: Start) -> None:
    """Go's profiles have no meaning here; what is asked of them most is where threads are."""
    start(profiling=True, healthz_bind_address="")
    served(METRICS)
    stacks = ask(LOOPBACK, METRICS, "/debug/stacks")
    assert stacks.status == 200
    assert re.search(r"^MainThread:\n  File ", stacks.body.decode(), re.MULTILINE)
    assert ask(LOOPBACK, METRICS, "/debug/pprof/").status == 404


def test_without_profiling_there_are_no_stacks(start: Start) -> None:
    start()
    served(METRICS)
    assert ask(LOOPBACK, METRICS, "/debug/stacks").status == 404


@pytest.mark.parametrize(("port", "path"), [(HEALTH, "/healthz"), (METRICS, "/metrics")])
def test_methods(start: Start, port: int, path: str) -> None:
    """HEAD says what GET would, without the body; others are not allowed. What is nowhere is not found."""
    start()
    served(port)
    got, head = ask(LOOPBACK, port, path), ask(LOOPBACK, port, path, "HEAD")
    assert (head.status, head.body) == (got.status, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert int(head.headers["content-length"]) > 100
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        refused = ask(LOOPBACK, port, path, method)
        assert (refused.status, refused.body) == (405, b"405 method not allowed\n")
        assert refused.headers["allow"] == "GET, HEAD"
    for missing in ("/", f"{path}/", path.upper(), "/../etc/passwd", f"/x{path}", "/favicon.ico"):
        answer = ask(LOOPBACK, port, missing)
        assert (answer.status, answer.body) == (404, NOT_FOUND)


@pytest.mark.parametrize(("path"), ["/metrics", "/livez", "/configz", "/statusz"])
def test_the_health_server_has_only_its_own_pages(start: Start, path: str) -> None:
    start()
    served(HEALTH)
    served(METRICS)
    ours = ask(LOOPBACK, HEALTH, path).status == 200, ask(LOOPBACK, METRICS, path).status == 200
    assert ours == ((True, False) if path == "/livez" else (False, True))


def test_no_answer_tells_what_it_was_made_with(start: Start) -> None:
    start()
    served(HEALTH)
    requests = (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"?\r\n\r\n")
    for request in requests:
        assert not re.search(rb"python|asyncio|server:", exchange(LOOPBACK, HEALTH, request), re.IGNORECASE)


GARBAGE = {
    "nonsense": (os.urandom(64).replace(b"\n", b"") + b"\r\n\r\n", 400),
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
def test_garbage_gets_an_answer_and_harms_nobody(start: Start, what: str) -> None:
    start()
    served(HEALTH)
    sent, status = GARBAGE[what]
    assert parse(exchange(LOOPBACK, HEALTH, sent)).status == status
    assert ask(LOOPBACK, HEALTH, "/healthz").status == 200


def test_a_request_that_comes_byte_by_byte(start: Start) -> None:
    start()
    served(HEALTH)
    with socket.create_connection((LOOPBACK, HEALTH), HANG) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n":
            connection.sendall(bytes([byte]))
        received = b""
        while piece := connection.recv(65536):
            received += piece
    assert parse(received).status == 200


def test_who_says_nothing_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether nothing was sent, half a request, or the answer is not read to its end."""
    monkeypatch.setattr("knft.serve.connection.REQUEST_SECONDS", 0.05)
    running = start()
    served(METRICS)
    for begun in (b"", b"GET /metrics HTTP/1.1\r\nA:"):
        assert exchange(LOOPBACK, METRICS, begun) == b""
    with socket.create_connection((LOOPBACK, METRICS), HANG) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        eventually(lambda: connection.recv(1, socket.MSG_PEEK) != b"")
        eventually(lambda: not any(len(server._room) for server in running.serving._servers))


def test_slow_clients_take_no_threads_and_keep_nobody_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there is room for: who has said nothing for longest has to leave, and a probe is answered."""
    monkeypatch.setattr("knft.serve.bound.MOST_CONNECTIONS", 50)
    monkeypatch.setattr("knft.serve.connection.REQUEST_SECONDS", 10 * HANG)
    start()
    served(HEALTH)
    before = threading.active_count()
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((LOOPBACK, HEALTH), HANG)) for _ in range(120)]
        for connection in slow[-50:]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nA")
        for _ in range(60):
            assert ask(LOOPBACK, HEALTH, "/livez").status == 200
        assert threading.active_count() == before
        assert {connection.recv(1) for connection in slow[:60]} == {b""}


def test_who_goes_on_talking_after_the_answer_is_cut_off(start: Start) -> None:
    start()
    served(HEALTH)
    endless = b"GET /livez HTTP/1.1\r\n\r\n" + b"x" * (1 << 26)
    with socket.create_connection((LOOPBACK, HEALTH), HANG) as connection, pytest.raises(ConnectionError):
        connection.sendall(endless)


def test_a_page_that_fails_is_said_and_is_nobodys_end(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    running = start()
    served(HEALTH)

    def broken() -> bool:
        msg = "a mistake"
        raise ZeroDivisionError(msg)

    running.eligible = broken
    with caplog.at_level(logging.ERROR, "knft"):
        answer = ask(LOOPBACK, HEALTH, "/healthz")
    assert (answer.status, answer.body) == (500, b"500 internal server error\n")
    assert caplog.messages == ["/healthz could not be answered; please report this"]
    assert ask(LOOPBACK, HEALTH, "/livez").status == 200
