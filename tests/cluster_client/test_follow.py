"""What comes of lists and watches, and of every way in which they fail."""

import logging

import pytest
from msgspec.structs import replace

from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Node, Service
from tests.cluster_client.cluster import Cluster, endpoint_slice, node, service, service_cidr
from tests.cluster_client.following import NODE, SHORT, following
from tests.cluster_client.server import ApiServer, hang, refuse, reset, send_raw, stream_raw

EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


def small() -> Cluster:
    cluster = Cluster()
    cluster.put("services", service("web", 1))
    cluster.put("services", service("shop", 2))
    cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.0.1", "10.244.0.2"))
    cluster.put("servicecidrs", service_cidr("kubernetes", "10.96.0.0/16"))
    cluster.put("nodes", node(NODE, "192.0.2.11"))
    cluster.put("nodes", node("node-2", "192.0.2.12"))
    return cluster


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def infos(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")


def test_lists_as_a_stream_and_watches_on_the_same() -> None:
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        it.mirror.wait_names(NODE, kind="Node")
        assert it.mirror.names() == {"web", "shop"}
        assert it.mirror.names("EndpointSlice") == {"web-1"}
        assert it.mirror.names("ServiceCIDR") == {"kubernetes"}
        server.cluster.put("services", service("new", 3))
        server.cluster.remove("services", "web")
        server.cluster.put("services", service("shop", 2, externalIPs=["198.51.100.1"]))
        it.mirror.wait(lambda: len(it.mirror.changes) == 8, "three changes")
        assert it.mirror.names() == {"shop", "new"}
        assert server.forms() == ["stream"]
        asked = server.of("services")[0]
        assert asked.headers["User-Agent"].startswith("knft/")
        assert asked.headers["Accept"] == "application/json"
        assert asked.query == {
            "labelSelector": "!service.kubernetes.io/service-proxy-name",
            "fieldSelector": "spec.clusterIP!=None",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "450",
        }
        assert server.of("endpointslices")[0].query["labelSelector"] == "!service.kubernetes.io/headless"
        assert server.of("nodes")[0].query["fieldSelector"] == f"metadata.name={NODE}"
        assert "labelSelector" not in server.of("servicecidrs")[0].query


def test_objects_that_cease_to_match_go_and_those_that_begin_to_come() -> None:
    foreign = {"service.kubernetes.io/service-proxy-name": "other"}
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        labelled = service("web", 1)
        labelled["metadata"]["labels"] |= foreign
        server.cluster.put("services", labelled)
        it.mirror.wait_names("shop")
        server.cluster.put("services", service("web", 1))
        it.mirror.wait_names("shop", "web")
        server.cluster.put("services", service("web", 1, clusterIP="None", clusterIPs=["None"]))
        it.mirror.wait_names("shop")


def test_what_knft_does_not_read_makes_no_change() -> None:
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        touched = service("web", 1, selector={"app": "other"})
        touched["metadata"] |= {"labels": {"app": "other"}, "managedFields": [], "finalizers": ["somebody/else"]}
        server.cluster.put("services", touched)
        server.cluster.put("services", service("last", 3))
        it.mirror.wait_names("web", "shop", "last")
        assert [change.current for change in it.mirror.changes if isinstance(change.previous, Service)] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList gate is on"),
        (422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch"),
        (400, "the server rejected our request for an unknown reason"),
    ],
)
def test_an_old_server_is_listed_in_pages(code: int, said: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = small()
    for number in range(10, 20):
        cluster.put("services", service(f"s{number}", number))
    with ApiServer(cluster) as server:
        server.largest_page = 5
        server.demand("stream", refuse(code, said, "Invalid"), times=4)
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert len(it.mirror.names()) == 12
            assert it.mirror.batches.count(12) == 1
            server.wait_for("watch services")
            pages = [asked.query for asked in server.of("services") if asked.form == "list"]
            assert [("continue" in query, query["limit"]) for query in pages] == [(False, "500"), *[(True, "500")] * 2]
            server.cluster.put("services", service("later", 30))
            it.mirror.wait(lambda: "later" in it.mirror.names(), "later")
            assert server.forms()[-1] == "watch"
    assert not warnings(caplog)


def test_a_server_that_does_not_say_when_all_is_listed_is_listed_in_pages() -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}\n'
    for answer in (stream_raw(bookmark), stream_raw(then="hang"), stream_raw()):
        with ApiServer(small()) as server:
            server.demand("stream services", answer)
            with following(server) as it:
                assert it.source.wait_synced(20)
                assert server.forms()[:2] == ["stream", "list"]
                assert it.mirror.names() == {"web", "shop"}


def test_a_server_without_the_field_selector() -> None:
    cluster = small()
    cluster.put("services", service("headless", 3, clusterIP="None", clusterIPs=["None"]))
    with ApiServer(cluster) as server:
        server.knows_field_selectors = False
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert it.mirror.names() == {"web", "shop"}
            assert server.forms() == ["stream", "stream"]
            assert "fieldSelector" not in server.of("services")[-1].query


def test_a_server_without_either() -> None:
    with ApiServer(small()) as server:
        server.knows_field_selectors = server.streams_lists = False
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert it.mirror.names() == {"web", "shop"}
            server.wait_for("watch services")


def test_a_watch_goes_on_where_the_last_bookmark_was() -> None:
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        server.cluster.put("nodes", node("node-3", "192.0.2.13"))
        latest = str(server.cluster.version)
        it.until(lambda: it.source.synced, "synced")
        for count in range(1, 4):
            server.cluster.put("nodes", node("node-3", f"192.0.2.{20 + count}"))
            latest = str(server.cluster.version)
            # The bookmark that follows on it has come when the next object has.
            server.cluster.put("services", service(f"after-{count}", 20 + count))
            it.mirror.wait(lambda name=f"after-{count}": name in it.mirror.names(), "the next")  # type: ignore[misc]
            server.cut_streams()
            assert int(server.wait_for("watch services", count).query["resourceVersion"]) >= int(latest)
        assert server.forms().count("stream") == 1


def test_what_happens_between_two_watches_is_not_lost() -> None:
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        server.demand("watch services", refuse(500, "etcdserver: leader changed"), times=3)
        server.cut_streams()
        server.wait_for("watch services", 1)
        server.cluster.remove("services", "web")
        server.cluster.put("services", service("new", 3))
        it.mirror.wait_names("shop", "new")
        assert server.forms().count("stream") == 1


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


def test_forbidden_service_cidrs_hold_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.demand("stream servicecidrs", refuse(403, "no", "Forbidden"), times=1000)
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert not it.mirror.names("ServiceCIDR")
    assert [line for line in warnings(caplog) if "servicecidrs" in line]


def test_service_cidrs_of_an_older_version() -> None:
    with ApiServer(small()) as server:
        server.missing.add("/apis/networking.k8s.io/v1/servicecidrs")
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert it.mirror.names("ServiceCIDR") == {"kubernetes"}


def test_a_cluster_without_service_cidrs(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        paths = {f"/apis/networking.k8s.io/{version}/servicecidrs" for version in ("v1", "v1beta1")}
        server.missing |= paths
        with following(server) as it:
            assert it.source.wait_synced(20)
            assert not it.mirror.names("ServiceCIDR")
            # It is looked at again, now and then, and said once.
            server.wait_for("stream servicecidrs", 5)
            assert it.stop.of("servicecidrs")[:2] == pytest.approx([it.times.missing * 1.1] * 2)
            server.missing.clear()
            it.mirror.wait_names("kubernetes", kind="ServiceCIDR")
    assert len([line for line in infos(caplog) if "knft goes without" in line]) == 1
    assert not warnings(caplog)


def test_something_that_is_no_api_server(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server:
        server.missing.add("/api/v1/services")
        with following(server) as it:
            it.until(lambda: warnings(caplog), "a warning")
            server.missing.clear()
            assert it.source.wait_synced(20)
    assert warnings(caplog)[0].startswith("services are not there: it answers 404")


def test_an_object_that_cannot_be_meant_is_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    cluster = small()
    cluster.put("services", service("bad", 4, ports=[{"port": 70000}]))
    cluster.put("services", service("worse", 5, clusterIP="10.96.0.999", clusterIPs=["10.96.0.999"]))
    for streams_lists in (True, False):
        caplog.clear()
        with ApiServer(cluster) as server:
            server.streams_lists = streams_lists
            with following(server) as it:
                assert it.source.wait_synced(20)
                assert it.mirror.names() == {"web", "shop"}
                said = warnings(caplog)
                assert sorted(said) == [
                    "Service default/bad: spec.ports[0].port: 70000 is not from 1 to 65535; left out",
                    "Service default/worse: spec.clusterIPs[0]: '10.96.0.999' is not an IP address; left out",
                ]
                # It is said once, also where a list shows it again.
                with cluster.changed:
                    cluster.compact()
                    cluster.put("services", service("other", 8))
                it.mirror.wait(lambda: "other" in it.mirror.names(), "other")
                assert warnings(caplog) == said
                cluster.put("services", service("bad", 4))
                it.mirror.wait(lambda: "bad" in it.mirror.names(), "bad")
                cluster.put("services", service("bad", 4, ports=[{"port": 0}]))
                it.mirror.wait(lambda: "bad" not in it.mirror.names(), "bad is absent")
                cluster.put("services", service("bad", 4, ports=[{"port": 70000}]))
                cluster.remove("services", "other")
                it.mirror.wait_names("web", "shop")


def test_what_is_passed_over_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(small()) as server, following(server) as it:
        assert it.source.wait_synced(20)
        server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.0.1", "127.0.0.1"))

        def addresses() -> list[tuple[str, ...]]:
            found = it.mirror.objects["EndpointSlice", NamespacedName("default", "web-1")]
            assert isinstance(found, EndpointSlice)
            return [endpoint.addresses for endpoint in found.endpoints or ()]

        it.mirror.wait(lambda: addresses() == [("10.244.0.1",)], "one address")
    assert any("EndpointSlice default/web-1: endpoints[1].addresses[0]" in line for line in warnings(caplog))


def test_events_that_are_there_together_are_one_batch() -> None:
    with ApiServer(small()) as server:
        events = b"".join(
            b'{"type":"ADDED","object":{"metadata":{"name":"n%d","namespace":"x","resourceVersion":"%d"},"spec":{}}}\n'
            % (number, 300 + number)
            for number in range(50)
        )
        server.streams_lists = False
        server.demand("watch services", stream_raw(events, then="end"))
        with following(server) as it:
            it.mirror.wait(lambda: 50 in it.mirror.batches, "50 at once")


def test_a_node_that_comes_later() -> None:
    cluster = Cluster()
    with ApiServer(cluster) as server, following(server) as it:
        assert it.source.wait_synced(20)
        cluster.put("nodes", node(NODE, "192.0.2.11", podCIDRs=["10.244.1.0/24"]))
        it.mirror.wait_names(NODE, kind="Node")
        found = it.mirror.changes[0].current
        assert isinstance(found, Node)
        assert found.spec is not None
        assert found.spec.pod_cidrs == ("10.244.1.0/24",)
