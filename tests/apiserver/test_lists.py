"""Following resources of an API server: lists and watches, in the ways of new servers and old ones."""

import pytest

from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Node, Service
from tests.apiserver.answers import refuse, stream_raw
from tests.apiserver.cluster import Cluster, endpoint_slice, node, service
from tests.apiserver.following import NODE, following, small
from tests.apiserver.logged import infos, warnings
from tests.apiserver.server import ApiServer

pytestmark = pytest.mark.usefixtures("info")


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
