"""Requests for the pods of endpoints, which wait for the API server: names, errors, and clients that go away."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from knft.control.objects import PodPage, pods_path
from knft.errors import ApiServerError
from knft.model.endpoint_pod import EndpointPod
from knft.model.names import NamespacedName
from knft.serve import pod_requests
from knft.serve.http_thread import HttpThread
from knft.serve.pod_requests import MAX_WAITING, ListPods, PodRequests
from knft.serve.timestamp import now
from tests.support.http_client import http_request
from tests.support.waiting import TIMEOUT, wait_until

LOOPBACK = "127.0.0.1"
WEB = NamespacedName("shop", "web")
POD = EndpointPod("10.244.1.5", "node-1", "web-0", "zone-a", "ready")
API = NamespacedName("shop", "api")
PAGE = msgspec.json.encode(PodPage((POD,)))


class SlowApiServer:
    """Answers when ``may_answer`` is set."""

    def __init__(self) -> None:
        self.asked: list[NamespacedName] = []
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def list_pods(self, service: NamespacedName, _: str) -> PodPage:
        self.asked.append(service)
        self.is_asked.set()
        assert self.may_answer.wait(TIMEOUT)
        return PodPage((POD,))


@contextmanager
def _server(list_pods: ListPods) -> Iterator[int]:
    """Serve requests for pods; yield the port."""
    thread = HttpThread(now)
    listening = socket.create_server((LOOPBACK, 0))
    listening.setblocking(False)  # noqa: FBT003 - the socket's own
    requests = PodRequests(list_pods, lambda service: service.name != "unknown")
    thread.call_soon(lambda: thread.listen(listening, lambda request: requests.respond(request.path), "pods"))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.stop()


def test_token_of_a_page_is_passed_on() -> None:
    """A token may have any characters."""
    asked: list[tuple[NamespacedName, str]] = []

    def list_pods(service: NamespacedName, token: str) -> PodPage:
        asked.append((service, token))
        return PodPage((POD,), "next/ü%")

    with _server(list_pods) as port:
        for token in ("", "next/ü%"):
            page = msgspec.json.decode(http_request(LOOPBACK, port, pods_path(WEB, token)).body, type=PodPage)
            assert page == PodPage((POD,), "next/ü%")
    assert asked == [(WEB, ""), (WEB, "next/ü%")]


@pytest.mark.parametrize(
    "name", ["a,b", "a%2cb", "a=b", "-a", "a-", "A", "a.b", "..", "", "a/b", "a" * 64 + "/../x", "a\u00e4"]
)
def test_names_that_are_no_services_are_not_requested(name: str) -> None:
    """They could change the label selector or the path."""
    asked: list[NamespacedName] = []

    def list_pods(service: NamespacedName, _: str) -> PodPage:
        asked.append(service)
        return PodPage()

    with _server(list_pods) as port:
        for path in (f"/objects/pods/shop/{name}/", f"/objects/pods/{name}/web/"):
            assert http_request(LOOPBACK, port, path.encode().decode("latin-1")).status in {400, 404}
    assert asked == []


def test_pods_of_a_service_without_slices_are_not_requested() -> None:
    def list_pods(_: NamespacedName, __: str) -> PodPage:
        pytest.fail("a request")

    with _server(list_pods) as port:
        answer = http_request(LOOPBACK, port, pods_path(NamespacedName("shop", "unknown")))
    assert msgspec.json.decode(answer.body, type=PodPage) == PodPage()


def test_error_of_the_api_server_is_in_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    def list_pods(_: NamespacedName, __: str) -> PodPage:
        msg = "the server answered 403"
        raise ApiServerError(msg)

    with _server(list_pods) as port:
        answer = http_request(LOOPBACK, port, pods_path(WEB))
    assert msgspec.json.decode(answer.body, type=PodPage) == PodPage(problem="the server answered 403")
    assert not caplog.messages


def test_unexpected_error_is_logged_and_the_next_client_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    errors = [RuntimeError("a bug")]

    def list_pods(_: NamespacedName, __: str) -> PodPage:
        while errors:
            raise errors.pop()
        return PodPage((POD,))

    with caplog.at_level(logging.WARNING, "knft"), _server(list_pods) as port:
        assert http_request(LOOPBACK, port, pods_path(WEB)).status == 500
        assert http_request(LOOPBACK, port, pods_path(WEB)).status == 200
    (record,) = caplog.records
    assert record.getMessage() == "pods: unexpected error while serving '/objects/pods/shop/web/'; please report this"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


def test_client_that_goes_away_gets_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The thread that waits for the API server ends without an error."""
    is_asked, is_gone = threading.Event(), threading.Event()

    def list_pods(service: NamespacedName, _: str) -> PodPage:
        if service == WEB:
            is_asked.set()
            assert is_gone.wait(TIMEOUT)
        return PodPage((POD,))

    with caplog.at_level(logging.WARNING), _server(list_pods) as port:
        with socket.create_connection((LOOPBACK, port)) as client:
            client.sendall(f"GET {pods_path(WEB)} HTTP/1.1\r\n\r\n".encode())
            assert is_asked.wait(TIMEOUT)
        # The loop sees the end of that connection before this request.
        assert http_request(LOOPBACK, port, "/other").status == 404
        is_gone.set()
        # The requests have one lock, so this answer comes after the first one.
        assert http_request(LOOPBACK, port, pods_path(API)).status == 200
    assert not caplog.records


def test_further_request_of_a_waiting_client_is_ignored() -> None:
    api = SlowApiServer()
    with _server(api.list_pods) as port, socket.create_connection((LOOPBACK, port)) as client:
        client.settimeout(TIMEOUT)
        request = f"GET {pods_path(WEB)} HTTP/1.1\r\n\r\n".encode()
        client.sendall(request)
        assert api.is_asked.wait(TIMEOUT)
        client.sendall(request)
        assert http_request(LOOPBACK, port, "/other").status == 404
        api.may_answer.set()
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert api.asked == [WEB]


def test_clients_that_disconnect_leave_few_threads_and_no_requests() -> None:
    """Only the first one has sent its request; the others that wait count, until that is answered."""
    api = SlowApiServer()
    with _server(api.list_pods) as port:
        for _ in range(3 * MAX_WAITING):
            with socket.create_connection((LOOPBACK, port)) as client:
                client.sendall(f"GET {pods_path(WEB)} HTTP/1.1\r\n\r\n".encode())
                assert api.is_asked.wait(TIMEOUT)
            assert http_request(LOOPBACK, port, "/other").status == 404
        assert len([thread for thread in threading.enumerate() if thread.name == "endpoint-pods"]) == MAX_WAITING
        busy = http_request(LOOPBACK, port, pods_path(WEB))
        assert "for other commands" in msgspec.json.decode(busy.body, type=PodPage).problem
        api.may_answer.set()
        wait_until(lambda: http_request(LOOPBACK, port, pods_path(API)).body == PAGE, "the threads do not end")
    assert api.asked == [WEB, API]


def test_client_is_told_that_the_api_server_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_requests, "ANSWER_SECONDS", 0.2)
    may_answer = threading.Event()

    def list_pods(_: NamespacedName, __: str) -> PodPage:
        assert may_answer.wait(TIMEOUT)
        return PodPage((POD,))

    with _server(list_pods) as port:
        answer = http_request(LOOPBACK, port, pods_path(WEB))
        may_answer.set()
    page = msgspec.json.decode(answer.body, type=PodPage)
    assert page == PodPage(problem="the API server has not answered within 5 s")
