"""Decodes the events of a watch and the pages of a list into the structs of ``knft.model.objects``.

Data that fits the types, as nearly all does, is decoded as a whole. Otherwise each item is decoded alone, so that the
invalid ones are named and the others are used. If an object does not fit the types, knft reads only its name and skips
it: an invalid object must not hide other objects.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from knft.apiserver import lenient_json
from knft.apiserver.error_text import one_line
from knft.errors import ApiServerError
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject
from knft.source.decode import decode_object, format_problems
from knft.source.formatting import format_name
from knft.source.validate import fatal_problems, without_invalid_parts

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streaming list."""
_OBJECT_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
MAX_DEPTH = 64
"""msgspec refuses data that is nested about 1 000 levels deep. Such data is decoded again without the values below this
level; knft reads none of them."""
_DecodeErrors = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _VersionMetadata(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct, frozen=True):
    metadata: _VersionMetadata


class _VersionedEvent(Struct, frozen=True):
    object: _Versioned


class _IdentityMetadata(Struct, frozen=True):
    name: str
    namespace: str = ""

    @property
    def key(self) -> NamespacedName | None:
        return NamespacedName(self.namespace, self.name) if self.name else None


class _Identity(Struct, frozen=True):
    metadata: _IdentityMetadata


class _Annotations(Struct, frozen=True):
    end_of_list: str | None = msgspec.field(name=INITIAL_EVENTS_END, default=None)


class _BookmarkMetadata(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: _Annotations | None = None


class _Bookmark(Struct, frozen=True):
    metadata: _BookmarkMetadata


class _RawEvent(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMetadata(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class _RawPage(Struct, frozen=True):
    metadata: _ListMetadata
    items: tuple[msgspec.Raw, ...] | None = None


# Built once: see api_client.
_LIST_METADATA = msgspec.json.Decoder(_ListMetadata)
_VERSIONED = msgspec.json.Decoder(_Versioned)
_IDENTITY = msgspec.json.Decoder(_Identity)


class ObjectEvent(Struct, frozen=True):
    """The current object; None if it was deleted, or if it is invalid, and then ``warnings`` tell why.

    ``resource_version`` is "" for the objects of a list.
    """

    key: NamespacedName | None
    object: KubeObject | None
    warnings: tuple[str, ...] = ()
    resource_version: str = ""


class Bookmark(Struct, frozen=True):
    """A resource version up to which all events were sent; ``ends_list`` tells that a streaming list is complete."""

    resource_version: str
    ends_list: bool = False


class WatchError(Struct, frozen=True):
    """The error that ends a watch: an encoded Status, and the resource version of the last object before it, if any."""

    status: bytes
    resource_version: str = ""


class ListPage(Struct, frozen=True):
    """A page of a list, at one resource version; ``continue_token`` requests the next one, and is "" in the last."""

    items: tuple[ObjectEvent, ...]
    resource_version: str
    continue_token: str


class WatchEvents(Struct, frozen=True):
    """Events in their order; ``resource_version`` is that of the last one, "" if it is a bookmark or an error."""

    items: tuple[ObjectEvent | Bookmark | WatchError, ...]
    resource_version: str = ""


class ObjectDecoder:
    """Decodes one kind of object."""

    def __init__(self, kind: type[KubeObject]) -> None:
        """Create the decoders once, because creation is slow, and in one thread (see api_client)."""
        self._kind = kind
        event = msgspec.defstruct(f"{kind.__name__}Event", [("type", str), ("object", kind)], frozen=True)
        page = msgspec.defstruct(
            f"{kind.__name__}Page",
            [("metadata", _ListMetadata), ("items", tuple[kind, ...] | None, None)],  # type: ignore[valid-type]
            frozen=True,
        )
        self._event_lines = msgspec.json.Decoder(event)
        self._whole_page = msgspec.json.Decoder(page)
        self._event_version = msgspec.json.Decoder(_VersionedEvent)
        self._raw_event = msgspec.json.Decoder(_RawEvent)
        self._raw_page = msgspec.json.Decoder(_RawPage)
        self._bookmark = msgspec.json.Decoder(_Bookmark)
        self._anything = msgspec.json.Decoder()
        self._where = "API server"

    def decode_page(self, data: bytes | bytearray) -> ListPage:
        """Decode a page of a list; raise ApiServerError if it is not one."""
        try:
            page: Any = self._whole_page.decode(data)
        except _DecodeErrors:
            return self._decode_page_items(bytes(data))
        return ListPage(
            tuple(map(self._checked, page.items or ())), page.metadata.resource_version, page.metadata.continue_token
        )

    def _decode_page_items(self, data: bytes) -> ListPage:
        try:
            raw = self._decode_pruned(self._raw_page, data)
            metadata, items = raw.metadata, [bytes(item) for item in raw.items or ()]
        except _DecodeErrors as error:
            whole = lenient_json.object_members(data) if lenient_json.is_complete(data) else {}
            try:
                metadata = _LIST_METADATA.decode(whole.get("metadata", b""))
            except _DecodeErrors:
                whole = {}
            if whole.get("items", b"")[:1] != b"[":
                msg = f"cannot decode the list: {error}"
                raise ApiServerError(msg) from error
            items = list(lenient_json.list_items(whole["items"]))
        return ListPage(tuple(map(self._decode_object, items)), metadata.resource_version, metadata.continue_token)

    def decode_events(self, lines: bytes, *, is_list: bool = False) -> WatchEvents:
        """Decode complete lines of a watch, one event each; raise ApiServerError if one is not an event.

        ``is_list`` tells that they are the initial events of a streaming list: their resource versions are left out.
        """
        try:
            found: list[Any] = self._event_lines.decode_lines(lines)
            if found and _OBJECT_EVENTS.issuperset({event.type for event in found}):
                last = self._last_resource_version(lines)
                versions = ("",) * len(found) if is_list else self._resource_versions(lines, len(found), last)
                return WatchEvents(tuple(map(self._from_event, found, versions)), last)
        except _DecodeErrors:
            pass
        return self._decode_each_event(lines)

    def _last_resource_version(self, lines: bytes) -> str:
        stripped = lines.rstrip()
        return self._event_version.decode(stripped[stripped.rfind(b"\n") + 1 :]).object.metadata.resource_version

    def _resource_versions(self, lines: bytes, count: int, last: str) -> Sequence[str]:
        """Return the resource version of each event; most of the time there is only one."""
        if count == 1:
            return (last,)
        return [event.object.metadata.resource_version for event in self._event_version.decode_lines(lines)]

    def _decode_each_event(self, lines: bytes) -> WatchEvents:
        items: list[ObjectEvent | Bookmark | WatchError] = []
        version = ""
        for line in lines.split(b"\n"):
            if not line.strip():
                continue
            try:
                event_type, encoded = self._split_event(line)
                if event_type == "ERROR":
                    items.append(WatchError(encoded, version))
                version = self._resource_version_of(encoded, version) if event_type in _OBJECT_EVENTS else ""
                items += self._from_raw_event(event_type, encoded, version)
            except _DecodeErrors as error:
                msg = f"cannot decode a watch event: {one_line(str(error))}"
                raise ApiServerError(msg) from error
        return WatchEvents(tuple(items), version)

    def _split_event(self, line: bytes) -> tuple[str, bytes]:
        """Return the type and the encoded object of an event; raise a decoder's error if the line is not an event."""
        try:
            event = self._decode_pruned(self._raw_event, line)
        except _DecodeErrors:
            whole = lenient_json.object_members(line) if lenient_json.is_complete(line) else {}
            event_type = lenient_json.scalar_text(whole.get("type", b""))
            if event_type not in _OBJECT_EVENTS or whole.get("object", b"")[:1] != b"{":
                raise
            return event_type, whole["object"]
        return event.type, bytes(event.object)

    @staticmethod
    def _decode_pruned(decoder: Any, data: bytes) -> Any:  # noqa: ANN401 - any of the decoders
        """Decode; if the data is nested too deep, decode it without the values below MAX_DEPTH."""
        try:
            return decoder.decode(data)
        except RecursionError:
            return decoder.decode(lenient_json.prune_below(data, MAX_DEPTH))

    @staticmethod
    def _resource_version_of(encoded: bytes, before: str) -> str:
        """Return the resource version of an object, even if it cannot be decoded; ``before`` if it has none.

        Raises a decoder's error if it is not an object at all.
        """
        try:
            return _VERSIONED.decode(encoded).metadata.resource_version or before
        except _DecodeErrors:
            if encoded[:1] != b"{":
                raise
        metadata = lenient_json.object_members(lenient_json.object_members(encoded).get("metadata", b""))
        return lenient_json.scalar_text(metadata.get("resourceVersion", b"")) or before

    def _from_raw_event(self, event_type: str, encoded: bytes, version: str) -> Iterator[ObjectEvent | Bookmark]:
        match event_type:
            case "ADDED" | "MODIFIED":
                yield structs.replace(self._decode_object(encoded), resource_version=version)
            case "DELETED":
                yield ObjectEvent(self._key_in(encoded), None, resource_version=version)
            case "BOOKMARK":
                metadata = self._bookmark.decode(encoded).metadata
                ends_list = metadata.annotations is not None and metadata.annotations.end_of_list == "true"
                yield Bookmark(metadata.resource_version, ends_list=ends_list)

    def _from_event(self, event: Any, version: str) -> ObjectEvent:  # noqa: ANN401 - a struct made in __init__
        if event.type == "DELETED":
            return ObjectEvent(event.object.key, None, resource_version=version)
        return self._checked(event.object, version)

    def _checked(self, found: KubeObject, version: str = "") -> ObjectEvent:
        """Validate an object whose fields have the right types."""
        key = found.key
        wrong = fatal_problems(found)
        if wrong:
            return ObjectEvent(key, None, tuple(format_problems(self._name(key), wrong, "; skipped")), version)
        found, ignored = without_invalid_parts(found)
        warnings = tuple(format_problems(self._name(key), ignored, "")) if ignored else ()
        return ObjectEvent(key, found, warnings, version)

    def _decode_object(self, raw: bytes) -> ObjectEvent:
        """Decode and validate an object that may have any shape."""
        try:
            document = self._decode_pruned(self._anything, raw)
            document = document if isinstance(document, dict) else {}
            found, warnings = decode_object(self._where, document, self._kind)
        except _DecodeErrors as error:
            key = self._key_in(raw)
            name = self._name(key) if key is not None else f"{self._where}: {self._kind.__name__}"
            return ObjectEvent(key, None, (f"{name}: cannot be decoded: {one_line(str(error))}; skipped",))
        return ObjectEvent(self._key(document) if found is None else found.key, found, tuple(warnings))

    def _key_in(self, raw: bytes) -> NamespacedName | None:
        """Return the name of an object, even if it is invalid or cannot be decoded."""
        try:
            return _IDENTITY.decode(raw).metadata.key
        except _DecodeErrors:
            pass
        metadata = lenient_json.object_members(lenient_json.object_members(raw).get("metadata", b""))
        fields = _IdentityMetadata.__struct_fields__
        found = {field: lenient_json.scalar_text(metadata[field]) for field in fields if field in metadata}
        return self._key({"metadata": found})

    def _key(self, document: dict[str, Any]) -> NamespacedName | None:
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
            return None
        namespace = metadata.get("namespace", "")
        return NamespacedName(namespace if isinstance(namespace, str) else "", name)

    def _name(self, key: NamespacedName) -> str:
        return f"{self._kind.__name__} {format_name(str(key).lstrip('/'))}"
