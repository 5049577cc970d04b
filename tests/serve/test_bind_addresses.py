"""Tests of the two bind addresses: wildcards, ports in use, exhausted file descriptors."""

import errno
import logging
import resource
import socket
import time
from typing import Any

import pytest

from knft.errors import UsageError
from knft.model.events import Event, ObjectReference
from knft.serve.sockets import listen_at
from tests.serve.node import HEALTH, LOOPBACK, METRICS
from tests.serve.standalone import StartServers, wait_until_served
from tests.support.http_client import TIMEOUT_SECONDS, http_request, refuses_connections
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]"])  # noqa: S104 - in a namespace
def test_wildcard_address_serves_both_families(start: StartServers, address: str) -> None:
    start(healthz_bind_address=f"{address}:{HEALTH}")
    wait_until_served(HEALTH)
    assert {http_request(host, HEALTH, "/livez").status for host in (LOOPBACK, "127.0.0.9", "::1")} == {200}


@pytest.mark.parametrize(
    ("address", "reached", "not_reached"), [("127.0.0.2", "127.0.0.2", "127.0.0.1"), ("[::1]", "::1", "127.0.0.1")]
)
def test_specific_address_serves_only_that_address(
    start: StartServers, address: str, reached: str, not_reached: str
) -> None:
    start(healthz_bind_address=f"{address}:{HEALTH}")
    wait_until(lambda: not refuses_connections(reached, HEALTH))
    assert http_request(reached, HEALTH, "/livez").status == 200
    assert refuses_connections(not_reached, HEALTH)


def test_restart_can_bind_the_ports_at_once(start: StartServers) -> None:
    """Open connections of the old process do not block its ports."""
    for _ in range(3):
        servers = start()
        wait_until_served(HEALTH)
        wait_until_served(METRICS)
        http_request(LOOPBACK, HEALTH, "/livez")
        with socket.create_connection((LOOPBACK, HEALTH), TIMEOUT_SECONDS):
            servers.monitoring.stop()
            assert refuses_connections(LOOPBACK, HEALTH)
            assert refuses_connections(LOOPBACK, METRICS)
    servers.monitoring.stop()


def test_empty_address_means_no_server(start: StartServers) -> None:
    start(healthz_bind_address="")
    wait_until_served(METRICS)
    assert refuses_connections(LOOPBACK, HEALTH)


@pytest.mark.parametrize(
    "address", ["", "10256", "localhost:10256", "0.0.0.0:0", "0.0.0.0:65536", "[::1]", "1.2.3.4:x"]
)
def test_invalid_bind_address_is_refused(address: str) -> None:
    from knft.serve.sockets import split_address

    with pytest.raises(UsageError, match=r"^invalid bind address .*: expected IP:port, such as 0\.0\.0\.0:10256"):
        split_address(address)


TAKEN = f"the health server cannot listen on 0.0.0.0:{HEALTH}: Address already in use"
NOT_ASSIGNED = f"the metrics server cannot listen on 192.0.2.1:{METRICS}: Cannot assign requested address"


def test_port_in_use_is_retried(
    start: StartServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first of the attempts is logged, one event is sent, and the process continues."""
    attempts: list[int] = []

    def listen(host: str, port: int) -> socket.socket:
        attempts.append(port)
        return listen_at(host, port)

    monkeypatch.setattr("knft.serve.http_server.listen_at", listen)
    monkeypatch.setattr("knft.serve.http_server.RETRY_SECONDS", 0.02)
    with socket.create_server(("0.0.0.0", HEALTH)) as taken, caplog.at_level(logging.INFO, "knft"):  # noqa: S104 - in a namespace
        servers = start()
        wait_until(lambda: attempts.count(HEALTH) > 2)
        assert caplog.messages.count(f"{TAKEN}; retrying every 0.02 s") == 1
        wait_until_served(METRICS)
        taken.close()
        wait_until(lambda: f"the health server listens on 0.0.0.0:{HEALTH}" in caplog.messages)
    assert http_request(LOOPBACK, HEALTH, "/livez").status == 200
    assert servers.failures == []
    assert servers.events == [
        Event(
            ObjectReference("Node", "node-1"), "FailedToStartProxierHealthcheck", "StartKubeProxy", TAKEN, warning=True
        )
    ]


def test_retry_interval_is_five_seconds(start: StartServers, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr(
        "knft.serve.http_thread.HttpThread.call_later", lambda _thread, seconds, _callback: delays.append(seconds)
    )
    with socket.create_server(("0.0.0.0", HEALTH)):  # noqa: S104 - in a namespace
        start()
        wait_until(lambda: bool(delays))
    assert delays == [5.0]


def test_wildcard_fails_if_one_family_is_in_use(start: StartServers) -> None:
    """Another process uses the port in IPv6; as with kube-proxy, the wildcard then fails for both families."""
    with socket.socket(socket.AF_INET6) as taken:
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind(("::", HEALTH))
        taken.listen()
        servers = start()
        wait_until(lambda: bool(servers.events))
        assert refuses_connections(LOOPBACK, HEALTH)
    assert [event.note for event in servers.events] == [TAKEN]


def test_address_that_appears_later_is_served(
    start: StartServers, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is added to an interface after the start."""
    monkeypatch.setattr("knft.serve.http_server.RETRY_SECONDS", 0.02)
    servers = start(metrics_bind_address=f"192.0.2.1:{METRICS}")
    wait_until(lambda: bool(servers.events))
    assert [(event.reason, event.note) for event in servers.events] == [("FailedToStartMetricServer", NOT_ASSIGNED)]
    namespace.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
    wait_until(lambda: not refuses_connections("192.0.2.1", METRICS))
    assert http_request("192.0.2.1", METRICS, "/healthz").body == b"ok"


def test_hard_failure_is_reported_once_and_not_retried(
    start: StartServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process sends the event and exits, because bindAddressHardFail is set."""
    delays: list[float] = []
    monkeypatch.setattr(
        "knft.serve.http_thread.HttpThread.call_later", lambda _thread, seconds, _callback: delays.append(seconds)
    )
    with socket.create_server(("0.0.0.0", HEALTH)), caplog.at_level(logging.ERROR, "knft"):  # noqa: S104 - in a namespace
        servers = start(bind_address_hard_fail=True)
        assert servers.failed.wait(TIMEOUT_SECONDS)
        wait_until_served(METRICS)
    assert servers.failures == [TAKEN]
    assert [event.reason for event in servers.events] == ["FailedToStartProxierHealthcheck"]
    assert caplog.messages == [TAKEN]
    assert delays == []
    assert refuses_connections(LOOPBACK, HEALTH)


def test_ipv4_is_served_on_a_host_without_ipv6(start: StartServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.0.0.0 is served over IPv4 if the kernel has no IPv6 sockets."""
    real = socket.socket

    def only_ipv4(family: int, *others: Any, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *others, **more)

    monkeypatch.setattr("knft.serve.sockets.socket.socket", only_ipv4)
    start()
    wait_until(lambda: response_or_nothing() != b"")


def response_or_nothing() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        if connection.connect_ex((LOOPBACK, HEALTH)):
            return b""
        connection.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        return connection.recv(100)


def test_accept_pauses_without_free_file_descriptors(
    start: StartServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """EMFILE must not cause a busy loop; when files are available again, waiting clients get a response."""
    monkeypatch.setattr("knft.serve.http_thread.ACCEPT_PAUSE_SECONDS", 0.05)
    start(metrics_bind_address="")  # The other server would need descriptors, too.
    wait_until_served(HEALTH)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as connection, caplog.at_level(logging.ERROR, "knft"):
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            connection.connect((LOOPBACK, HEALTH))
            wait_until(lambda: bool(caplog.messages))
            time.sleep(0.2)  # Some pauses: nothing reports that the server does not accept meanwhile.
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connection.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    message = "health server: cannot accept a connection: Too many open files; retrying in 0.05 s"
    assert set(caplog.messages) == {message}
    assert len(caplog.messages) <= 8
