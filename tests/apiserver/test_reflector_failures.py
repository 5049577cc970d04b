"""The reflector and a failing API server: it retries, logs each problem once, and loses no changes."""

import pytest
from msgspec.structs import replace

from knft.model.objects import Service
from tests.apiserver.log_records import infos, warnings
from tests.apiserver.running_source import SHORT_WATCH_TIMEOUTS, running_source, two_service_cluster
from tests.support.fake_api.cluster import service
from tests.support.fake_api.responses import (
    never_respond,
    reset_connection,
    respond_bytes,
    respond_status,
    respond_stream,
)
from tests.support.fake_api.server import FakeApiServer

pytestmark = pytest.mark.usefixtures("capture_info_log")
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


@pytest.mark.parametrize("expired", ["event", "status"])
def test_expired_resource_version_lists_again(expired: str, caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        before = len(run.changes.received)
        if expired == "status":
            server.respond_next("watch services", respond_status(410, "too old resource version", "Expired"))
        server.respond_next("watch services", respond_stream(EXPIRED))
        with server.cluster.changed:
            server.end_streams()
            server.cluster.remove("services", "web")
            server.cluster.put("services", service("new", 3))
            server.cluster.compact()
        run.changes.wait_names("shop", "new")
        assert server.wait_for_request("stream services", 2).query.get("resourceVersion") is None
        # Unchanged objects make no change: one was added, one removed.
        assert len([change for change in run.changes.received[before:] if isinstance(change.current, Service)]) == 1
    assert not warnings(caplog)


def test_expired_continue_token_lists_without_pages() -> None:
    cluster = two_service_cluster()
    with FakeApiServer(cluster) as server:
        server.supports_streaming_lists, server.max_page_size = False, 1
        server.respond_next("list services", lambda *_: False)
        server.respond_next(
            "list services", respond_status(410, "The provided continue parameter is too old", "Expired")
        )
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert run.changes.names() == {"web", "shop"}
            lists = [request.query for request in server.requests_for("services") if request.kind == "list"]
            assert ["limit" in query for query in lists] == [True, True, False]
            assert "continue" not in lists[2]


def test_resource_version_from_the_future_lists_again() -> None:
    """etcd was restored from a backup that is older than the resource version."""
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        server.respond_next(
            "watch services", respond_status(504, "Too large resource version: 900, current: 100", "Timeout")
        )
        server.end_streams()
        assert "resourceVersion" not in server.wait_for_request("stream services", 2).query


FAILURES = {
    "cut": reset_connection,
    "no answer": never_respond,
    "500": respond_status(500, "etcdserver: request timed out", "InternalError"),
    "503": respond_status(503, "apiserver not ready", "ServiceUnavailable"),
    "not HTTP": respond_bytes(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "empty": respond_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "truncated list": respond_bytes(
        b'HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"metadata":{"resourceVersion":"1"},'
    ),
    "not JSON": respond_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>"),
    "a redirect": respond_bytes(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failed_list_is_retried_with_backoff(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("list services", FAILURES[name], times=2)
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert run.changes.names() == {"web", "shop"}
            # Twice as long the second time; three quarters of each, as the random fraction is 0.5.
            assert run.stop.pauses_of("services")[:2] == pytest.approx([0.6, 1.2])
    assert len([line for line in warnings(caplog) if "rules stay as they are" in line]) == 1
    assert len([line for line in infos(caplog) if "watching the API server again after" in line]) == 1


EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"x","namespace":"default","resourceVersion":"300"},"spec":{}}}\n'
ERROR = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"no"}}\n'
BROKEN_STREAMS = {
    "closed": (respond_stream(EVENT, ending="close"), "300"),
    "cut": (respond_stream(EVENT[:30], ending="reset"), "106"),
    "truncated event": (respond_stream(EVENT, EVENT[:30]), "300"),
    "truncated chunk": (
        respond_bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + EVENT[:50]),
        "106",
    ),
    "not JSON": (respond_stream(b"<html>\n"), "106"),
    "not an event": (respond_stream(b'{"kind":"Status"}\n'), "106"),
    "not UTF-8": (respond_stream(b'{"type":"ADDED","object":"\xff\xfe"}\n'), "106"),
    "not chunked": (respond_bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + EVENT), "106"),
    "unrequested content encoding": (
        respond_bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: br\r\n\r\n"),
        "106",
    ),
    "an error": (respond_stream(EVENT + ERROR), "300"),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
def test_interrupted_watch_resumes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    answer, version = BROKEN_STREAMS[name]
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", answer)
        with running_source(server, watch_timeouts=replace(SHORT_WATCH_TIMEOUTS, short_lived=5.0)) as run:
            assert run.source.wait_all_listed(20)
            assert server.wait_for_request("watch services", 2).query["resourceVersion"] == version
            # It ends as soon as it has started, which is logged.
            assert len([line for line in warnings(caplog) if "cannot watch the API server" in line]) == 1
            server.cluster.version = 300
            server.cluster.put("services", service("later", 9))
            run.changes.wait(lambda: "later" in run.changes.names(), "later")
            assert server.kinds_of_requests() == ["stream", "list", "watch", "watch"]


def test_interrupted_long_watch_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_stream(EVENT[:30], ending="reset"), times=4)
        with running_source(server, watch_timeouts=replace(SHORT_WATCH_TIMEOUTS, short_lived=0.0)) as run:
            assert run.source.wait_all_listed(20)
            server.wait_for_request("watch services", 2)
    assert not [line for line in warnings(caplog) if "cannot watch the API server" in line]


def test_repeatedly_interrupted_watches_are_one_problem(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_stream(EVENT[:30], ending="reset"), times=4)
        with running_source(server, watch_timeouts=replace(SHORT_WATCH_TIMEOUTS, short_lived=5.0)) as run:
            assert run.source.wait_all_listed(20)
            server.wait_for_request("watch services", 5)
            server.cluster.put("services", service("later", 9))
            run.wait_until(
                lambda: any("watching the API server again" in line for line in infos(caplog)), "the problem is over"
            )
    assert len([line for line in warnings(caplog) if "cannot watch the API server" in line]) == 1
    assert len([line for line in infos(caplog) if "watching the API server again" in line]) == 1


def test_repeated_empty_watches_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Empty watches end without an error, so changes arrive 30 s late. A single empty watch is not logged."""
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_stream(), times=1)
        with running_source(server, watch_timeouts=replace(SHORT_WATCH_TIMEOUTS, short_lived=5.0)) as run:
            server.wait_for_request("watch services", 2)
            server.cluster.put("services", service("later", 9))
            run.changes.wait(lambda: "later" in run.changes.names(), "later")
            assert not warnings(caplog)
            server.respond_next("watch services", respond_stream(), times=4)
            server.end_streams()
            server.wait_for_request("watch services", 7)
            server.cluster.put("services", service("last", 10))
            run.wait_until(lambda: infos(caplog), "the problem is over")
    text = "cannot watch the API server: the server ends watches as soon as they start; rules stay as they are"
    assert warnings(caplog) == [text]
    assert len([line for line in infos(caplog) if "watching the API server again after" in line]) == 1


def test_incomplete_list_is_not_used() -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.respond_next("stream services", respond_stream(EVENT, ending="close"))
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert run.changes.names() == {"web", "shop"}
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists, server.max_page_size = False, 1
        server.respond_next("list services", lambda *_: False)
        server.respond_next("list services", respond_status(500, "no"))
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            # The failed page is requested again, not the one before.
            lists = [
                request.query.get("continue", "")
                for request in server.requests_for("services")
                if request.kind == "list"
            ]
            assert lists == ["", "106-1", "106-1"]
            assert run.changes.names() == {"web", "shop"}


def test_retry_after_is_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.respond_next(
            "stream services", respond_status(429, "too many requests", "TooManyRequests", Retry_After="17")
        )
        server.respond_next("stream services", respond_status(503, "starting", "ServiceUnavailable", Retry_After="9"))
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            first, second = run.stop.pauses_of("services")[:2]
            # The jitter adds a tenth.
            assert [first, second] == pytest.approx([17 * 1.1, 9 * 1.1])
    # The second is a problem of another kind.
    assert [line.partition(" the server answered ")[2][:3] for line in warnings(caplog)] == ["429", "503"]
    assert "; the server asks for a retry after 17 s" in warnings(caplog)[0]


def test_repeated_retry_after_backs_off() -> None:
    with FakeApiServer(two_service_cluster()) as server:
        refusal = respond_status(429, "too many requests", "TooManyRequests", Retry_After="1")
        server.respond_next("stream services", refusal, times=6)
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            # The backoff alone would be 0.6, 1.2, 2.4 ...
            assert run.stop.pauses_of("services")[:6] == pytest.approx([1.5, 1.5, 2.4, 4.8, 9.6, 19.2])


def test_repeated_expiry_backs_off(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_stream(EXPIRED), times=6)
        with running_source(server, watch_timeouts=replace(SHORT_WATCH_TIMEOUTS, short_lived=0.0)) as run:
            server.wait_for_request("watch services", 7)
            assert run.stop.pauses_of("services")[:6] == pytest.approx([0.5, 0.6, 1.2, 2.4, 4.8, 9.6])
    (text,) = warnings(caplog)
    assert text.startswith("resource versions of services expire repeatedly (the watch ended with 410: too old)")


def test_interrupted_long_watch_resets_the_backoff() -> None:
    """A watch that has worked for a while resets the backoff, however often it is interrupted."""
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_status(500, "no"), times=3)
        server.respond_next("watch services", respond_stream(EVENT, ending="close"), times=4)
        server.respond_next("watch services", respond_status(500, "no"), times=1)
        with running_source(server, watch_timeouts=replace(SHORT_WATCH_TIMEOUTS, short_lived=0.0)) as run:
            server.wait_for_request("watch services", 9)
            assert run.stop.pauses_of("services")[:8] == pytest.approx([0.6, 1.2, 2.4, *[0.5] * 4, 0.6])


def test_forbidden_resource_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    text = 'endpointslices is forbidden: User "system:serviceaccount:kube-system:knft" cannot watch resource'
    with FakeApiServer(two_service_cluster()) as server:
        server.respond_next("stream endpointslices", respond_status(403, text, "Forbidden"), times=5)
        with running_source(server) as run:
            run.changes.wait_names("web", "shop")
            run.wait_until(lambda: len(run.stop.pauses_of("endpointslices")) >= 3, "three pauses")
            server.cluster.put("services", service("new", 3))
            run.changes.wait_names("web", "shop", "new")
            assert run.source.wait_all_listed(20)
            assert run.stop.pauses_of("endpointslices")[:5] == pytest.approx([0.6, 1.2, 2.4, 4.8, 9.6])
    assert warnings(caplog) == [
        f"not allowed to watch endpointslices: {text}; apply deploy/kustomize/base/rbac.yaml; retrying"
    ]
    assert "watching endpointslices again" in infos(caplog)


def test_server_that_is_not_an_api_server(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.missing_paths.add("/api/v1/services")
        with running_source(server) as run:
            run.wait_until(lambda: warnings(caplog), "a warning")
            server.missing_paths.clear()
            assert run.source.wait_all_listed(20)
    assert warnings(caplog)[0].startswith("services not found: the server answered 404")
