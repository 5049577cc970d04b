"""ObjectDecoder and Store: from encoded events and pages to changes."""

import json
from typing import Any

import pytest

from knft.apiserver.decoder import Bookmark, ListPage, ObjectDecoder, ObjectEvent, WatchError
from knft.apiserver.store import Store
from knft.errors import ApiServerError
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from tests.support.fake_api.cluster import Object, endpoint_slice, node, service, service_cidr

WEB = NamespacedName("default", "web")


def event_line(event_type: str, document: Any, version: int = 0) -> bytes:
    if version:
        document = {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}
    return json.dumps({"type": event_type, "object": document}).encode() + b"\n"


def page(*items: Any, **metadata: str) -> bytes:
    return json.dumps({"kind": "ServiceList", "metadata": metadata, "items": list(items)}).encode()


def test_every_kind_is_decoded() -> None:
    for kind, found in (
        (Service, service("web")),
        (EndpointSlice, endpoint_slice("web", "web", "10.244.0.1")),
        (Node, node("web", "192.0.2.1")),
        (ServiceCIDR, service_cidr("web", "10.96.0.0/16")),
    ):
        events = ObjectDecoder(kind).decode_events(event_line("ADDED", found, 7))
        (item,) = events.items
        assert isinstance(item, ObjectEvent)
        assert type(item.object) is kind
        assert item.object.key == item.key
        assert (item.warnings, events.resource_version) == ((), "7")


def test_events_keep_their_order() -> None:
    events = ObjectDecoder(Service).decode_events(
        event_line("ADDED", service("web"), 5)
        + event_line("BOOKMARK", {"metadata": {"resourceVersion": "8", "creationTimestamp": None}, "spec": {}})
        + b"\n"
        + event_line("DELETED", service("web"), 9)
        + event_line("SOMETHING", service("web"), 10)
        + event_line("MODIFIED", service("web", ports=[{"port": 0}]), 11)
        + event_line("ERROR", {"kind": "Status", "code": 410})
        + event_line(
            "BOOKMARK", {"metadata": {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}}
        )
    )
    sorts = [type(item).__name__ for item in events.items]
    assert sorts == ["ObjectEvent", "Bookmark", "ObjectEvent", "ObjectEvent", "WatchError", "Bookmark"]
    put, first, gone, bad, failure, last = events.items
    assert isinstance(put, ObjectEvent)
    assert put.object is not None
    assert gone == ObjectEvent(WEB, None, resource_version="9")
    assert isinstance(bad, ObjectEvent)
    assert (bad.key, bad.object) == (WEB, None)
    assert bad.warnings == ("Service default/web: spec.ports[0].port: 0 is not between 1 and 65535; skipped",)
    assert (first, last) == (Bookmark("8"), Bookmark("12", ends_list=True))
    assert isinstance(failure, WatchError)
    assert failure.resource_version == "11"
    # The bookmark's resource version is later than the last object's.
    assert events.resource_version == ""


def test_object_in_a_bookmark_is_ignored() -> None:
    events = ObjectDecoder(Service).decode_events(event_line("BOOKMARK", service("web"), 8))
    assert events.items == (Bookmark("8"),)


def test_deletion_of_an_invalid_object_is_decoded() -> None:
    found = service("web", ports=[{"port": 70000}])
    assert ObjectDecoder(Service).decode_events(event_line("DELETED", found, 3)).items == (
        ObjectEvent(WEB, None, resource_version="3"),
    )


def test_each_event_has_its_resource_version_except_in_a_list() -> None:
    lines = event_line("ADDED", service("web"), 5) + event_line("DELETED", service("web"), 6)
    decoder = ObjectDecoder(Service)
    assert [item.resource_version for item in decoder.decode_events(lines).items] == ["5", "6"]
    assert [item.resource_version for item in decoder.decode_events(lines, is_list=True).items] == ["", ""]
    (only,) = decoder.decode_events(event_line("ADDED", service("web"), 7)).items
    assert only.resource_version == "7"
    undecoded = event_line("ADDED", service("web", ports=5), 8) + event_line("ADDED", service("web"), 9)
    assert [item.resource_version for item in decoder.decode_events(undecoded).items] == ["8", "9"]


@pytest.mark.parametrize("found", [[], "text", 5, None, {}, {"metadata": {}}])
def test_item_that_is_not_an_object_is_skipped(found: Any) -> None:
    data = page(found, service("web"), resourceVersion="9")
    first, second = ObjectDecoder(Service).decode_page(data).items
    assert (first.key, first.object) == (None, None)
    assert first.warnings[0].startswith("API server: Service: ")
    assert second.object is not None


def test_nulls_are_missing_fields() -> None:
    found = service("web", ports=None, externalIPs=None, type=None)
    (item,) = ObjectDecoder(Service).decode_page(page(found, resourceVersion="9")).items
    assert isinstance(item.object, Service)
    assert item.object.spec.type == "ClusterIP"


def test_page_returns_objects_and_continue_token() -> None:
    reader = ObjectDecoder(Service)
    assert reader.decode_page(b'{"metadata":{"resourceVersion":"5"},"items":null}') == ListPage((), "5", "")
    assert reader.decode_page(b'{"metadata":{"resourceVersion":"5","continue":"more"},"items":[]}') == ListPage(
        (), "5", "more"
    )


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"<html>", b'{"metadata":{},"items":5}', b'{"metadata":', b"\xff"])
def test_invalid_list_is_an_error(data: bytes) -> None:
    with pytest.raises(ApiServerError, match="cannot decode the list"):
        ObjectDecoder(Service).decode_page(data)


@pytest.mark.parametrize(
    "data", [b"{}\n", b"[]\n", b"<html>\n", b'{"type":"ADDED"}\n', b'{"type":"BOOKMARK","object":5}\n']
)
def test_invalid_event_is_an_error(data: bytes) -> None:
    with pytest.raises(ApiServerError, match="cannot decode a watch event"):
        ObjectDecoder(Service).decode_events(event_line("ADDED", service("web"), 5) + data)


def listed(*found: Object) -> tuple[ObjectEvent, ...]:
    return ObjectDecoder(Service).decode_page(page(*found, resourceVersion="9")).items


def test_list_replaces_all_objects() -> None:
    store = Store("node-1")
    store.begin_list()
    store.add_listed(listed(service("web"), service("shop", 2)))
    assert [change.previous for change in store.finish_list()] == [None, None]
    web, shop = store.objects.values()
    store.begin_list()
    store.add_listed(listed(service("web"), service("new", 3)))
    gone, come = store.finish_list()
    assert (gone.previous, gone.current) == (shop, None)
    assert come.current is not None
    assert come.current.key.name == "new"
    # The store keeps the object that it had, not an equal copy.
    assert store.objects[WEB] is web


def test_restarted_list_drops_incomplete_list() -> None:
    store = Store("node-1")
    store.begin_list()
    store.add_listed(listed(service("shop", 2)))
    store.begin_list()
    store.add_listed(listed(service("web")))
    assert [change.current.key for change in store.finish_list() if change.current is not None] == [WEB]


def test_object_that_becomes_invalid_is_removed() -> None:
    store = Store("node-1")
    (first,) = store.apply_events(listed(service("web")))
    bad = listed(service("web", clusterIP="nonsense"))
    (second,) = store.apply_events(bad)
    assert (second.previous, second.current) == (first.current, None)
    assert len(store.unreported_warnings) == 1
    assert list(store.apply_events(bad)) == []
    assert len(store.unreported_warnings) == 1
    (third,) = store.apply_events(listed(service("web")))
    assert third.previous is None
    list(store.apply_events(bad))
    assert len(store.unreported_warnings) == 2
