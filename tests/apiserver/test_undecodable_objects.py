"""Objects that cannot be decoded, which any user of the cluster may write.

Deeply nested fields are dropped. Other undecodable objects are skipped without affecting other objects.
"""

import contextlib
import json
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from knft.apiserver import lenient_json
from knft.apiserver.decoder import Bookmark, ObjectDecoder, ObjectEvent
from knft.errors import ApiServerError
from knft.model.names import NamespacedName
from knft.model.objects import Service
from tests.apiserver.running_source import running_source
from tests.support.fake_api.cluster import FakeCluster, Object, service
from tests.support.fake_api.responses import respond_bytes, respond_stream
from tests.support.fake_api.server import FakeApiServer

DEEP = 5000
SKIPPED_KEY = NamespacedName("default", "bad")


def with_managed_fields(found: Object, what: bytes, version: int = 0) -> bytes:
    """Return an object whose managed fields are these bytes."""
    metadata = {**found["metadata"], "managedFields": "HERE"} | ({"resourceVersion": str(version)} if version else {})
    return json.dumps({**found, "metadata": metadata}).encode().replace(b'"HERE"', what)


def nested_value(brackets: str = "{}") -> bytes:
    """Return nested values, whose keys contain brackets."""
    opening, closing = ('{"f:\\"]}{[":', "}") if brackets == "{}" else ("[", "]")
    return f'[{{"fieldsV1":{opening * DEEP}5{closing * DEEP}}}]'.encode()


SURROGATE = b'"\\ud800"'
UNDECODABLE = [SURROGATE, b'{"a":01}']


def event(found: bytes, event_type: str = "MODIFIED") -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), found)


def names(items: tuple[Any, ...]) -> list[tuple[str, bool]]:
    return [(item.key.name, item.object is not None) for item in items]


@pytest.mark.parametrize("brackets", ["{}", "[]"])
def test_deeply_nested_values_are_pruned(brackets: str) -> None:
    bad = with_managed_fields(service("bad", 2), nested_value(brackets), 8)
    web = with_managed_fields(service("web"), b"[]", 9)
    events = ObjectDecoder(Service).decode_events(event(bad) + event(web))
    assert (names(events.items), events.resource_version) == ([("bad", True), ("web", True)], "9")
    assert ObjectDecoder(Service).decode_events(event(bad)).resource_version == "8"
    page = ObjectDecoder(Service).decode_page(
        b'{"metadata":{"resourceVersion":"9","continue":"c"},"items":[%b,%b]}' % (bad, web)
    )
    assert (names(page.items), page.resource_version, page.continue_token) == ([("bad", True), ("web", True)], "9", "c")
    assert not any(item.warnings for item in page.items)


def test_deleted_object_may_be_deeply_nested() -> None:
    events = ObjectDecoder(Service).decode_events(
        event(with_managed_fields(service("bad"), nested_value(), 8), "DELETED")
    )
    assert (events.items, events.resource_version) == ((ObjectEvent(SKIPPED_KEY, None, resource_version="8"),), "8")


@pytest.mark.parametrize("what", UNDECODABLE)
def test_undecodable_object_is_skipped_alone(what: bytes) -> None:
    bad = with_managed_fields(service("bad", 2), what, 8)
    web = with_managed_fields(service("web"), b"[]", 9)
    for lines, version in ((event(web) + event(bad), "8"), (event(bad) + event(web), "9")):
        events = ObjectDecoder(Service).decode_events(lines)
        assert (dict(names(events.items)), events.resource_version) == ({"bad": False, "web": True}, version)
    page = ObjectDecoder(Service).decode_page(b'{"items":[%b,%b],"metadata":{"resourceVersion":"9"}}' % (bad, web))
    assert (names(page.items), page.resource_version) == ([("bad", False), ("web", True)], "9")
    (text,) = page.items[0].warnings
    assert text.startswith("Service default/bad: cannot be decoded: ")
    assert text.endswith("; skipped")


@pytest.mark.parametrize("value", [b'"\xff\xfe"', b"1e999", b"9" * 5000])
@pytest.mark.parametrize("wrong", [b'"ports":5', b'"ports":[]'])
def test_undecodable_values_of_unused_fields_are_skipped(value: bytes, wrong: bytes) -> None:
    """Values of unread fields are skipped, unless a wrong type elsewhere requires decoding everything."""
    bad = with_managed_fields(service("bad", 2, ports=[]), value, 8).replace(b'"ports": []', wrong)
    reader = ObjectDecoder(Service)
    web = with_managed_fields(service("web"), b"[]")
    page = reader.decode_page(b'{"metadata":{"resourceVersion":"9"},"items":[%b,%b]}' % (bad, web))
    assert names(page.items) == [("bad", wrong != b'"ports":5'), ("web", True)]
    events = reader.decode_events(event(bad))
    assert (names(events.items), events.resource_version) == ([("bad", wrong != b'"ports":5')], "8")
    assert reader.decode_events(event(bad, "DELETED")).items == (ObjectEvent(SKIPPED_KEY, None, resource_version="8"),)


@pytest.mark.parametrize(("value", "version"), [(b"77", "77"), (b"null", ""), (b"{}", ""), (b"7.5", "")])
def test_resource_version_that_is_not_text(value: bytes, version: str) -> None:
    """A number is used; anything else counts as no resource version."""
    found = with_managed_fields(service("web"), b"[]", 5).replace(
        b'"resourceVersion": "5"', b'"resourceVersion":' + value
    )
    events = ObjectDecoder(Service).decode_events(event(found))
    assert (names(events.items), events.resource_version) == ([("web", True)], version)


def test_truncated_event_is_an_error() -> None:
    whole = event(with_managed_fields(service("bad"), SURROGATE, 8))
    for line in (whole[:-3] + b"\n", whole[:-1] + b"}\n", b"x" + whole):
        with pytest.raises(ApiServerError, match="cannot decode a watch event"):
            ObjectDecoder(Service).decode_events(line)


def test_reflector_continues_after_undecodable_objects(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")
    deep_one = with_managed_fields(service("deep", 2), nested_value(), 200)
    bad = with_managed_fields(service("bad", 3), SURROGATE, 201)
    numeric = with_managed_fields(service("numeric", 4), b"[]", 202).replace(b'"202"', b"202")
    cluster = FakeCluster()
    cluster.put("services", service("web"))
    with FakeApiServer(cluster) as server:
        server.supports_streaming_lists = False
        listed = b'{"metadata":{"resourceVersion":"200"},"items":[%b,%b]}' % (deep_one, bad)
        server.respond_next(
            "list services", respond_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(listed) + listed)
        )
        server.respond_next("watch services", respond_stream(*map(event, (deep_one, bad, numeric))))
        with running_source(server) as run:
            run.changes.wait_names("deep", "numeric")
            assert server.wait_for_request("watch services", 2).query["resourceVersion"] == "202"
    text = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line.partition(":")[0] for line in text] == ["Service default/bad"]


ANY = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=40,
)


def as_cut(value: Any, depth: int) -> Any:
    if isinstance(value, dict | list) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key: as_cut(item, depth - 1) for key, item in value.items()}
    return [as_cut(item, depth - 1) for item in value] if isinstance(value, list) else value


@given(ANY, some.integers(1, 5), some.booleans())
def test_lenient_json_agrees_with_the_decoder(value: Any, depth: int, spaces: bool) -> None:  # noqa: FBT001 - drawn
    data = json.dumps(value, ensure_ascii=spaces, indent=1 if spaces else None).encode(errors="replace")
    value = msgspec.json.decode(data)
    assert msgspec.json.decode(lenient_json.prune_below(data, depth)) == as_cut(value, depth)
    assert [msgspec.json.decode(item) for item in lenient_json.list_items(data)] == (
        value if isinstance(value, list) else []
    )
    if (
        isinstance(value, dict)
        and all("\\" not in json.dumps(name, ensure_ascii=False) for name in value)
        and not spaces
    ):
        assert {name: msgspec.json.decode(item) for name, item in lenient_json.object_members(data).items()} == value
    assert lenient_json.is_complete(data) == isinstance(value, dict | list)


@given(some.binary(max_size=60) | some.text('{}[]",:\\ a1', max_size=60).map(str.encode))
def test_any_bytes_raise_no_unexpected_error(data: bytes) -> None:
    lenient_json.prune_below(data, 1)
    lenient_json.is_complete(data)
    list(lenient_json.list_items(data))
    [lenient_json.scalar_text(value) for value in (data, *lenient_json.object_members(data).values())]
    with contextlib.suppress(ApiServerError):
        ObjectDecoder(Service).decode_events(event(b'{"metadata":{"name":"a","x":%b}}' % data))


def test_bookmark_after_an_undecodable_object() -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}\n'
    events = ObjectDecoder(Service).decode_events(event(with_managed_fields(service("bad"), SURROGATE, 8)) + bookmark)
    assert (events.items[1], events.resource_version) == (Bookmark("12"), "")
