"""Lists and watches, with new and old API servers."""

import pytest

from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Node, Service
from tests.apiserver.log_records import infos, warnings
from tests.apiserver.running_source import NODE, running_source, two_service_cluster
from tests.support.fake_api.cluster import FakeCluster, endpoint_slice, node, service
from tests.support.fake_api.responses import respond_status, respond_stream
from tests.support.fake_api.server import FakeApiServer

pytestmark = pytest.mark.usefixtures("capture_info_log")


def test_streaming_list_continues_as_watch() -> None:
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        run.changes.wait_names(NODE, kind="Node")
        assert run.changes.names() == {"web", "shop"}
        assert run.changes.names("EndpointSlice") == {"web-1"}
        assert run.changes.names("ServiceCIDR") == {"kubernetes"}
        server.cluster.put("services", service("new", 3))
        server.cluster.remove("services", "web")
        server.cluster.put("services", service("shop", 2, externalIPs=["198.51.100.1"]))
        run.changes.wait(lambda: len(run.changes.received) == 8, "three changes")
        assert run.changes.names() == {"shop", "new"}
        assert server.kinds_of_requests() == ["stream"]
        request = server.requests_for("services")[0]
        assert request.headers["User-Agent"].startswith("knft/")
        assert request.headers["Accept"] == "application/json"
        assert request.query == {
            "labelSelector": "!service.kubernetes.io/service-proxy-name",
            "fieldSelector": "spec.clusterIP!=None",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "450",
        }
        assert server.requests_for("endpointslices")[0].query["labelSelector"] == "!service.kubernetes.io/headless"
        assert server.requests_for("nodes")[0].query["fieldSelector"] == f"metadata.name={NODE}"
        assert "labelSelector" not in server.requests_for("servicecidrs")[0].query


def test_selectors_apply_to_changed_objects() -> None:
    foreign = {"service.kubernetes.io/service-proxy-name": "other"}
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        labelled = service("web", 1)
        labelled["metadata"]["labels"] |= foreign
        server.cluster.put("services", labelled)
        run.changes.wait_names("shop")
        server.cluster.put("services", service("web", 1))
        run.changes.wait_names("shop", "web")
        server.cluster.put("services", service("web", 1, clusterIP="None", clusterIPs=["None"]))
        run.changes.wait_names("shop")


def test_unread_fields_make_no_change() -> None:
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        touched = service("web", 1, selector={"app": "other"})
        touched["metadata"] |= {"labels": {"app": "other"}, "managedFields": [], "finalizers": ["somebody/else"]}
        server.cluster.put("services", touched)
        server.cluster.put("services", service("last", 3))
        run.changes.wait_names("web", "shop", "last")
        assert [change.current for change in run.changes.received if isinstance(change.previous, Service)] == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList gate is on"),
        (422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch"),
        (400, "the server rejected our request for an unknown reason"),
    ],
)
def test_server_without_streaming_lists_is_listed_in_pages(
    code: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = two_service_cluster()
    for number in range(10, 20):
        cluster.put("services", service(f"s{number}", number))
    with FakeApiServer(cluster) as server:
        server.max_page_size = 5
        server.respond_next("stream", respond_status(code, text, "Invalid"), times=4)
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert len(run.changes.names()) == 12
            assert run.changes.batches.count(12) == 1
            server.wait_for_request("watch services")
            pages = [request.query for request in server.requests_for("services") if request.kind == "list"]
            assert [("continue" in query, query["limit"]) for query in pages] == [(False, "500"), *[(True, "500")] * 2]
            server.cluster.put("services", service("later", 30))
            run.changes.wait(lambda: "later" in run.changes.names(), "later")
            assert server.kinds_of_requests()[-1] == "watch"
    assert not warnings(caplog)


def test_stream_without_end_of_initial_events_falls_back_to_pages() -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}\n'
    for answer in (respond_stream(bookmark), respond_stream(ending="hang"), respond_stream()):
        with FakeApiServer(two_service_cluster()) as server:
            server.respond_next("stream services", answer)
            with running_source(server) as run:
                assert run.source.wait_all_listed(20)
                assert server.kinds_of_requests()[:2] == ["stream", "list"]
                assert run.changes.names() == {"web", "shop"}


def test_services_are_filtered_if_the_server_has_no_field_selector() -> None:
    cluster = two_service_cluster()
    cluster.put("services", service("headless", 3, clusterIP="None", clusterIPs=["None"]))
    with FakeApiServer(cluster) as server:
        server.supports_field_selectors = False
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert run.changes.names() == {"web", "shop"}
            assert server.kinds_of_requests() == ["stream", "stream"]
            assert "fieldSelector" not in server.requests_for("services")[-1].query


def test_server_without_streaming_lists_and_field_selectors() -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.supports_field_selectors = server.supports_streaming_lists = False
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert run.changes.names() == {"web", "shop"}
            server.wait_for_request("watch services")


def test_watch_resumes_at_the_last_bookmark() -> None:
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        server.cluster.put("nodes", node("node-3", "192.0.2.13"))
        latest = str(server.cluster.version)
        run.wait_until(lambda: run.source.all_listed, "synced")
        for count in range(1, 4):
            server.cluster.put("nodes", node("node-3", f"192.0.2.{20 + count}"))
            latest = str(server.cluster.version)
            # When the next object has arrived, so has the bookmark before it.
            server.cluster.put("services", service(f"after-{count}", 20 + count))
            run.changes.wait(lambda name=f"after-{count}": name in run.changes.names(), "the next")  # type: ignore[misc]
            server.end_streams()
            assert int(server.wait_for_request("watch services", count).query["resourceVersion"]) >= int(latest)
        assert server.kinds_of_requests().count("stream") == 1


def test_changes_between_two_watches_are_received() -> None:
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        server.respond_next("watch services", respond_status(500, "etcdserver: leader changed"), times=3)
        server.end_streams()
        server.wait_for_request("watch services", 1)
        server.cluster.remove("services", "web")
        server.cluster.put("services", service("new", 3))
        run.changes.wait_names("shop", "new")
        assert server.kinds_of_requests().count("stream") == 1


def test_forbidden_service_cidrs_do_not_delay_the_start(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.respond_next("stream servicecidrs", respond_status(403, "no", "Forbidden"), times=1000)
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert not run.changes.names("ServiceCIDR")
    assert [line for line in warnings(caplog) if "servicecidrs" in line]


def test_service_cidrs_of_v1beta1() -> None:
    with FakeApiServer(two_service_cluster()) as server:
        server.missing_paths.add("/apis/networking.k8s.io/v1/servicecidrs")
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert run.changes.names("ServiceCIDR") == {"kubernetes"}


def test_cluster_without_service_cidrs(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server:
        paths = {f"/apis/networking.k8s.io/{version}/servicecidrs" for version in ("v1", "v1beta1")}
        server.missing_paths |= paths
        with running_source(server) as run:
            assert run.source.wait_all_listed(20)
            assert not run.changes.names("ServiceCIDR")
            # The resource is requested again, and logged once.
            server.wait_for_request("stream servicecidrs", 5)
            assert run.stop.pauses_of("servicecidrs")[:2] == pytest.approx(
                [run.timeouts.missing_resource_retry * 1.1] * 2
            )
            server.missing_paths.clear()
            run.changes.wait_names("kubernetes", kind="ServiceCIDR")
    assert len([line for line in infos(caplog) if "continuing without them" in line]) == 1
    assert not warnings(caplog)


def test_invalid_object_is_logged_once_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    cluster = two_service_cluster()
    cluster.put("services", service("bad", 4, ports=[{"port": 70000}]))
    cluster.put("services", service("worse", 5, clusterIP="10.96.0.999", clusterIPs=["10.96.0.999"]))
    for streams_lists in (True, False):
        caplog.clear()
        with FakeApiServer(cluster) as server:
            server.supports_streaming_lists = streams_lists
            with running_source(server) as run:
                assert run.source.wait_all_listed(20)
                assert run.changes.names() == {"web", "shop"}
                text = warnings(caplog)
                assert sorted(text) == [
                    "Service default/bad: spec.ports[0].port: 70000 is not between 1 and 65535; skipped",
                    "Service default/worse: spec.clusterIPs[0]: '10.96.0.999' is not an IP address; skipped",
                ]
                # It is logged once, also when a list contains it again.
                with cluster.changed:
                    cluster.compact()
                    cluster.put("services", service("other", 8))
                run.changes.wait(lambda: "other" in run.changes.names(), "other")
                assert warnings(caplog) == text
                cluster.put("services", service("bad", 4))
                run.changes.wait(lambda: "bad" in run.changes.names(), "bad")
                cluster.put("services", service("bad", 4, ports=[{"port": 0}]))
                run.changes.wait(lambda: "bad" not in run.changes.names(), "bad is absent")
                cluster.put("services", service("bad", 4, ports=[{"port": 70000}]))
                cluster.remove("services", "other")
                run.changes.wait_names("web", "shop")


def test_invalid_endpoint_is_skipped_alone(caplog: pytest.LogCaptureFixture) -> None:
    with FakeApiServer(two_service_cluster()) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.0.1", "127.0.0.1"))

        def addresses() -> list[tuple[str, ...]]:
            found = run.changes.objects["EndpointSlice", NamespacedName("default", "web-1")]
            assert isinstance(found, EndpointSlice)
            return [endpoint.addresses for endpoint in found.endpoints or ()]

        run.changes.wait(lambda: addresses() == [("10.244.0.1",)], "one address")
    assert any("EndpointSlice default/web-1: endpoints[1].addresses[0]" in line for line in warnings(caplog))


def test_events_received_together_are_one_batch() -> None:
    with FakeApiServer(two_service_cluster()) as server:
        events = b"".join(
            b'{"type":"ADDED","object":{"metadata":{"name":"n%d","namespace":"x","resourceVersion":"%d"},"spec":{}}}\n'
            % (number, 300 + number)
            for number in range(50)
        )
        server.supports_streaming_lists = False
        server.respond_next("watch services", respond_stream(events, ending="end"))
        with running_source(server) as run:
            run.changes.wait(lambda: 50 in run.changes.batches, "50 at once")


def test_node_created_after_the_list_is_received() -> None:
    cluster = FakeCluster()
    with FakeApiServer(cluster) as server, running_source(server) as run:
        assert run.source.wait_all_listed(20)
        cluster.put("nodes", node(NODE, "192.0.2.11", podCIDRs=["10.244.1.0/24"]))
        run.changes.wait_names(NODE, kind="Node")
        found = run.changes.received[0].current
        assert isinstance(found, Node)
        assert found.spec is not None
        assert found.spec.pod_cidrs == ("10.244.1.0/24",)
