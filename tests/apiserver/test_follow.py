"""Following resources of an API server that fails: each failure is waited for, said once, and nothing is lost."""

import pytest
from msgspec.structs import replace

from knft.model.objects import Service
from tests.apiserver.answers import hang, refuse, reset, send_raw, stream_raw
from tests.apiserver.cluster import service
from tests.apiserver.following import SHORT, following, small
from tests.apiserver.logged import infos, warnings
from tests.apiserver.server import ApiServer

pytestmark = pytest.mark.usefixtures("info")
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


@pytest.mark.parametrize("expired", ["event", "status"])
def test_expired_means_list_again(expired: str, caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        before = len(it.mirror.changes)
        if expired == "status":
            server.demand("watch services", refuse(410, "too old resource version", "Expired"))
        server.demand("watch services", stream_raw(EXPIRED))
        with server.cluster.changed:
            server.cut_streams()
            server.cluster.remove("services", "web")
            server.cluster.put("services", service("new", 3))
            server.cluster.compact()
        it.mirror.wait_names("shop", "new")
        assert server.wait_for("stream services", 2).query.get("resourceVersion") is None
        # What is as it was makes no change: one came, one went.
        assert len([change for change in it.mirror.changes[before:] if isinstance(change.current, Service)]) == 1
    assert not warnings(caplog)


def test_pages_that_expire_are_listed_without_pages() -> None:
    cluster = small()
    with ApiServer(cluster) as server:
        server.streams_lists, server.largest_page = False, 1
        server.demand("list services", lambda *_: False)
        server.demand("list services", refuse(410, "The provided continue parameter is too old", "Expired"))
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert it.mirror.names() == {"web", "shop"}
            lists = [asked.query for asked in server.of("services") if asked.form == "list"]
            assert ["limit" in query for query in lists] == [True, True, False]
            assert "continue" not in lists[2]


def test_a_future_that_the_server_does_not_know_is_forgotten() -> None:
    """Etcd was put back to an older state: the resource version lies ahead of it."""
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        server.demand("watch services", refuse(504, "Too large resource version: 900, current: 100", "Timeout"))
        server.cut_streams()
        assert "resourceVersion" not in server.wait_for("stream services", 2).query


FAILURES = {
    "cut": reset,
    "no answer": hang,
    "500": refuse(500, "etcdserver: request timed out", "InternalError"),
    "503": refuse(503, "apiserver not ready", "ServiceUnavailable"),
    "not HTTP": send_raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "empty": send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "half a list": send_raw(b'HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"metadata":{"resourceVersion":"1"},'),
    "not JSON": send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>"),
    "a redirect": send_raw(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_list_that_fails_is_waited_for(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("list services", FAILURES[name], times=2)
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert it.mirror.names() == {"web", "shop"}
            # Twice as long the second time; drawn from the middle, three quarters of each.
            assert it.stop.of("services")[:2] == pytest.approx([0.6, 1.2])
    assert len([line for line in warnings(caplog) if "rules stay as they are" in line]) == 1
    assert len([line for line in infos(caplog) if "followed again, after" in line]) == 1


EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"x","namespace":"default","resourceVersion":"300"},"spec":{}}}\n'
ERROR = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"no"}}\n'
BROKEN_STREAMS = {
    "closed": (stream_raw(EVENT, then="close"), "300"),
    "cut": (stream_raw(EVENT[:30], then="reset"), "106"),
    "half an event": (stream_raw(EVENT, EVENT[:30]), "300"),
    "half a chunk": (send_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + EVENT[:50]), "106"),
    "not JSON": (stream_raw(b"<html>\n"), "106"),
    "no event": (stream_raw(b'{"kind":"Status"}\n'), "106"),
    "not text": (stream_raw(b'{"type":"ADDED","object":"\xff\xfe"}\n'), "106"),
    "no chunks": (send_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + EVENT), "106"),
    "no encoding that was asked for": (
        send_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: br\r\n\r\n"),
        "106",
    ),
    "an error": (stream_raw(EVENT + ERROR), "300"),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
def test_a_watch_that_breaks_off_goes_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    answer, version = BROKEN_STREAMS[name]
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("watch services", answer)
        with following(server, times=replace(SHORT, brief=5.0)) as it:
            assert it.source.wait_synced(20)
            assert server.wait_for("watch services", 2).query["resourceVersion"] == version
            # It breaks off as soon as it has begun, and that is said.
            assert len([line for line in warnings(caplog) if "cannot be followed" in line]) == 1
            server.cluster.version = 300
            server.cluster.put("services", service("later", 9))
            it.mirror.wait(lambda: "later" in it.mirror.names(), "later")
            assert server.forms() == ["stream", "list", "watch", "watch"]


def test_a_watch_that_breaks_off_after_a_while_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("watch", stream_raw(EVENT[:30], then="reset"), times=4)
        with following(server, times=replace(SHORT, brief=0.0)) as it:
            assert it.source.wait_synced(20)
            server.wait_for("watch services", 2)
    assert not [line for line in warnings(caplog) if "cannot be followed" in line]


def test_watches_that_break_off_one_after_the_other_are_one_trouble(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("watch services", stream_raw(EVENT[:30], then="reset"), times=4)
        with following(server, times=replace(SHORT, brief=5.0)) as it:
            assert it.source.wait_synced(20)
            server.wait_for("watch services", 5)
            server.cluster.put("services", service("later", 9))
            it.until(lambda: any("followed again" in line for line in infos(caplog)), "it is over")
    assert len([line for line in warnings(caplog) if "cannot be followed" in line]) == 1
    assert len([line for line in infos(caplog) if "followed again" in line]) == 1


def test_watches_that_end_as_soon_as_they_have_begun_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """Properly, and with nothing in them: what happens is seen half a minute late then. One alone is nothing."""
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("watch services", stream_raw(), times=1)
        with following(server, times=replace(SHORT, brief=5.0)) as it:
            server.wait_for("watch services", 2)
            server.cluster.put("services", service("later", 9))
            it.mirror.wait(lambda: "later" in it.mirror.names(), "later")
            assert not warnings(caplog)
            server.demand("watch services", stream_raw(), times=4)
            server.cut_streams()
            server.wait_for("watch services", 7)
            server.cluster.put("services", service("last", 10))
            it.until(lambda: infos(caplog), "it is over")
    said = "the API server cannot be followed: its watches end as soon as they have begun; rules stay as they are"
    assert warnings(caplog) == [said]
    assert len([line for line in infos(caplog) if "followed again, after" in line]) == 1


def test_half_a_list_counts_for_nothing() -> None:
    with ApiServer(small()) as server:
        server.demand("stream services", stream_raw(EVENT, then="close"))
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert it.mirror.names() == {"web", "shop"}
    with ApiServer(small()) as server:
        server.streams_lists, server.largest_page = False, 1
        server.demand("list services", lambda *_: False)
        server.demand("list services", refuse(500, "no"))
        with following(server) as it:
            assert it.source.wait_synced(20)
            # The page that failed is asked for again, and not the one before.
            lists = [asked.query.get("continue", "") for asked in server.of("services") if asked.form == "list"]
            assert lists == ["", "106-1", "106-1"]
            assert it.mirror.names() == {"web", "shop"}


def test_retry_after_is_honoured(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.demand("stream services", refuse(429, "too many requests", "TooManyRequests", Retry_After="17"))
        server.demand("stream services", refuse(503, "starting", "ServiceUnavailable", Retry_After="9"))
        with following(server) as it:
            assert it.source.wait_synced(20)
            first, second = it.stop.of("services")[:2]
            # A tenth longer is the jitter that was drawn.
            assert [first, second] == pytest.approx([17 * 1.1, 9 * 1.1])
    # The second is another trouble than the first.
    assert [line.partition(" it answers ")[2][:3] for line in warnings(caplog)] == ["429", "503"]


def test_the_same_retry_after_again_and_again_is_waited_for_ever_longer() -> None:
    with ApiServer(small()) as server:
        refusal = refuse(429, "too many requests", "TooManyRequests", Retry_After="1")
        server.demand("stream services", refusal, times=6)
        with following(server) as it:
            assert it.source.wait_synced(20)
            # The back-off alone would be 0.6, 1.2, 2.4 ...
            assert it.stop.of("services")[:6] == pytest.approx([1.5, 1.5, 2.4, 4.8, 9.6, 19.2])


def test_what_expires_again_and_again_is_listed_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("watch services", stream_raw(EXPIRED), times=6)
        with following(server, times=replace(SHORT, brief=0.0)) as it:
            server.wait_for("watch services", 7)
            assert it.stop.of("services")[:6] == pytest.approx([0.5, 0.6, 1.2, 2.4, 4.8, 9.6])
    (said,) = warnings(caplog)
    assert said.startswith("services expire again and again (its watch ends with 410: too old)")


def test_a_watch_that_breaks_off_after_a_while_is_asked_for_again_soon() -> None:
    """However often: what has worked for a while has pauses begin anew."""
    with ApiServer(small()) as server:
        server.streams_lists = False
        server.demand("watch services", refuse(500, "no"), times=3)
        server.demand("watch services", stream_raw(EVENT, then="close"), times=4)
        server.demand("watch services", refuse(500, "no"), times=1)
        with following(server, times=replace(SHORT, brief=0.0)) as it:
            server.wait_for("watch services", 9)
            assert it.stop.of("services")[:8] == pytest.approx([0.6, 1.2, 2.4, *[0.5] * 4, 0.6])


def test_forbidden_names_resource_and_verb_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    said = 'endpointslices is forbidden: User "system:serviceaccount:kube-system:knft" cannot watch resource'
    with ApiServer(small()) as server:
        server.demand("stream endpointslices", refuse(403, said, "Forbidden"), times=5)
        with following(server) as it:
            it.mirror.wait_names("web", "shop")
            it.until(lambda: len(it.stop.of("endpointslices")) >= 3, "three pauses")
            server.cluster.put("services", service("new", 3))
            it.mirror.wait_names("web", "shop", "new")
            assert it.source.wait_synced(20)
            assert it.stop.of("endpointslices")[:5] == pytest.approx([0.6, 1.2, 2.4, 4.8, 9.6])
    assert warnings(caplog) == [
        f"knft may not watch endpointslices: {said}; grant it (deploy/rbac.yaml); it is tried again"
    ]
    assert "endpointslices are followed again" in infos(caplog)


def test_something_that_is_no_api_server(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.missing.add("/api/v1/services")
        with following(server) as it:
            it.until(lambda: warnings(caplog), "a warning")
            server.missing.clear()
            assert it.source.wait_synced(20)
    assert warnings(caplog)[0].startswith("services are not there: it answers 404")
