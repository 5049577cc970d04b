"""Where the two bind addresses are served: wildcards, ports that are not to be had, files that run out."""

import errno
import logging
import resource
import socket
import time
from typing import Any

import pytest

from knft.errors import UsageError
from knft.serve.events import Event
from tests.serve.alone import Start, served
from tests.serve.client import HANG, ask, refuses
from tests.serve.node import HEALTH, LOOPBACK, METRICS, eventually
from tests.support.lab.namespace import Namespace


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]"])  # noqa: S104 - in a namespace
def test_wildcards_are_both_families(start: Start, address: str) -> None:
    start(healthz_bind_address=f"{address}:{HEALTH}")
    served(HEALTH)
    assert {ask(host, HEALTH, "/livez").status for host in (LOOPBACK, "127.0.0.9", "::1")} == {200}


@pytest.mark.parametrize(
    ("address", "reached", "not_reached"), [("127.0.0.2", "127.0.0.2", "127.0.0.1"), ("[::1]", "::1", "127.0.0.1")]
)
def test_another_address_is_that_alone(start: Start, address: str, reached: str, not_reached: str) -> None:
    start(healthz_bind_address=f"{address}:{HEALTH}")
    eventually(lambda: not refuses(reached, HEALTH))
    assert ask(reached, HEALTH, "/livez").status == 200
    assert refuses(not_reached, HEALTH)


def test_ports_are_released_and_taken_again_at_once(start: Start) -> None:
    """A restart does not wait for old connections, of which some are open still."""
    for _ in range(3):
        running = start()
        served(HEALTH)
        served(METRICS)
        ask(LOOPBACK, HEALTH, "/livez")
        with socket.create_connection((LOOPBACK, HEALTH), HANG):
            running.serving.stop()
            assert refuses(LOOPBACK, HEALTH)
            assert refuses(LOOPBACK, METRICS)
    running.serving.stop()


def test_an_empty_address_means_no_server(start: Start) -> None:
    start(healthz_bind_address="")
    served(METRICS)
    assert refuses(LOOPBACK, HEALTH)


@pytest.mark.parametrize(
    "address", ["", "10256", "localhost:10256", "0.0.0.0:0", "0.0.0.0:65536", "[::1]", "1.2.3.4:x"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    from knft.serve.sockets import split_address

    with pytest.raises(UsageError, match="is not an address to serve at; write it as in"):
        split_address(address)


TAKEN = f"health cannot be served at 0.0.0.0:{HEALTH}: Address already in use"
NOT_OURS = f"metrics cannot be served at 192.0.2.1:{METRICS}: Cannot assign requested address"


def test_a_port_that_is_taken_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try has its line in the log, one event is sent, and the process goes on."""
    monkeypatch.setattr("knft.serve.bound.RETRY_SECONDS", 0.02)
    with socket.create_server(("0.0.0.0", HEALTH)) as taken, caplog.at_level(logging.INFO, "knft"):  # noqa: S104 - in a namespace
        running = start()
        line = f"{TAKEN}; tried again in 0.02 s"
        eventually(lambda: caplog.messages.count(line) > 2)
        served(METRICS)
        taken.close()
        eventually(lambda: f"health served at 0.0.0.0:{HEALTH}" in caplog.messages)
    assert ask(LOOPBACK, HEALTH, "/livez").status == 200
    assert running.failures == []
    assert running.events == [
        Event("Node", "", "node-1", "", "Warning", "FailedToStartProxierHealthcheck", "StartKubeProxy", TAKEN)
    ]


def test_it_is_tried_again_every_five_seconds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[float] = []
    monkeypatch.setattr("knft.serve.thread.HttpThread.later", lambda _thread, seconds, _work: later.append(seconds))
    with socket.create_server(("0.0.0.0", HEALTH)):  # noqa: S104 - in a namespace
        start()
        eventually(lambda: bool(later))
    assert later == [5.0]


def test_one_family_alone_is_not_both(start: Start) -> None:
    """Where somebody has the port of the other one, as with kube-proxy."""
    with socket.socket(socket.AF_INET6) as taken:
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind(("::", HEALTH))
        taken.listen()
        running = start()
        eventually(lambda: bool(running.events))
        assert refuses(LOOPBACK, HEALTH)
    assert [event.note for event in running.events] == [TAKEN]


def test_an_address_that_is_not_ours_yet(start: Start, namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come later."""
    monkeypatch.setattr("knft.serve.bound.RETRY_SECONDS", 0.02)
    running = start(metrics_bind_address=f"192.0.2.1:{METRICS}")
    eventually(lambda: bool(running.events))
    assert [(event.reason, event.note) for event in running.events] == [("FailedToStartMetricServer", NOT_OURS)]
    namespace.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
    eventually(lambda: not refuses("192.0.2.1", METRICS))
    assert ask("192.0.2.1", METRICS, "/healthz").body == b"ok"


def test_a_hard_failure_is_told_once_and_nothing_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With bindAddressHardFail the process is to end, after its event."""
    again: list[float] = []
    monkeypatch.setattr("knft.serve.thread.HttpThread.later", lambda _thread, seconds, _work: again.append(seconds))
    with socket.create_server(("0.0.0.0", HEALTH)), caplog.at_level(logging.ERROR, "knft"):  # noqa: S104 - in a namespace
        running = start(bind_address_hard_fail=True)
        assert running.failed.wait(HANG)
        served(METRICS)
    assert running.failures == [f"the health server failed: {TAKEN}"]
    assert [event.reason for event in running.events] == ["FailedToStartProxierHealthcheck"]
    assert caplog.messages == [TAKEN]
    assert again == []
    assert refuses(LOOPBACK, HEALTH)


def test_a_machine_without_ipv6(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.0.0.0 is served all the same, where the kernel has no such sockets."""
    real = socket.socket

    def only_ipv4(family: int, *others: Any, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *others, **more)

    monkeypatch.setattr("knft.serve.sockets.socket.socket", only_ipv4)
    start()
    eventually(lambda: exchange_or_nothing() != b"")


def exchange_or_nothing() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(HANG)
        if connection.connect_ex((LOOPBACK, HEALTH)):
            return b""
        connection.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        return connection.recv(100)


def test_without_files_left_it_lets_nobody_in_for_a_moment(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """EMFILE must not turn the loop around at once; when there are files again, who waits is answered."""
    monkeypatch.setattr("knft.serve.thread.BREATH_SECONDS", 0.05)
    start()
    served(HEALTH)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as connection, caplog.at_level(logging.ERROR, "knft"):
        connection.settimeout(HANG)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            connection.connect((LOOPBACK, HEALTH))
            eventually(lambda: bool(caplog.messages))
            time.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connection.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    assert set(caplog.messages) == {"a connection was not accepted: Too many open files"}
    assert len(caplog.messages) <= 8
