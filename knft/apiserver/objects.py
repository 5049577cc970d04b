"""From bytes to objects: events of a watch and pages of a list, straight into the structs of ``model.objects``.

What fits the types, as nearly everything does, is decoded as a whole; only where something does not, item for item, so
that it is named and the others are taken. An object that no decoder takes is left out by its name, and gone past: what
one tenant writes must not keep what all others write from being seen.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from knft.apiserver import scan
from knft.apiserver.said import in_one_line
from knft.errors import ClusterError
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject
from knft.source.decode import checked, sentences_about
from knft.source.validate import faults, tidied
from knft.source.words import plain

END_OF_LIST = "k8s.io/initial-events-end"
"""The annotation of the bookmark that tells that everything has been listed."""
_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
DEPTH = 64
"""Values that lie deeper are cut off where a decoder gives up, at about a thousand; none that is read lies so deep."""
_Undecodable = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _VersionMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct, frozen=True):
    metadata: _VersionMeta


class _VersionedEvent(Struct, frozen=True):
    object: _Versioned


class _WhoMeta(Struct, frozen=True):
    name: str
    namespace: str = ""

    @property
    def key(self) -> NamespacedName | None:
        return NamespacedName(self.namespace, self.name) if self.name else None


class _Who(Struct, frozen=True):
    metadata: _WhoMeta


class _Annotations(Struct, frozen=True):
    end_of_list: str | None = msgspec.field(name=END_OF_LIST, default=None)


class _BookmarkMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: _Annotations | None = None


class _Bookmark(Struct, frozen=True):
    metadata: _BookmarkMeta


class _LooseEvent(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continues: str = msgspec.field(name="continue", default="")


class _LoosePage(Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


class Seen(Struct, frozen=True):
    """An object as it is now: None where it is gone, or cannot be meant, and then ``remarks`` say why."""

    key: NamespacedName | None
    object: KubeObject | None
    remarks: tuple[str, ...] = ()


class Bookmark(Struct, frozen=True):
    """A resource version up to which everything has come; the ``last`` of a list tells that it is complete."""

    version: str
    last: bool = False


class Failure(Struct, frozen=True):
    """The server's reason to end a watch, a Status as bytes; ``version`` is that of the object before, if any."""

    status: bytes
    version: str = ""


class Page(Struct, frozen=True):
    """A part of a list, at one resource version; ``continues`` is what to ask for the next one with."""

    items: tuple[Seen, ...]
    version: str
    continues: str


class Events(Struct, frozen=True):
    """Some events in their order; ``version`` is that of the last one, if it is of an object."""

    items: tuple[Seen | Bookmark | Failure, ...]
    version: str = ""


class Reader:
    """Reads one kind of object."""

    def __init__(self, kind: type[KubeObject]) -> None:
        """Make the decoders, which are used as long as the process lives."""
        self._kind = kind
        event = msgspec.defstruct(f"{kind.__name__}Event", [("type", str), ("object", kind)], frozen=True)
        page = msgspec.defstruct(
            f"{kind.__name__}Page",
            [("metadata", _ListMeta), ("items", tuple[kind, ...] | None, None)],  # type: ignore[valid-type]
            frozen=True,
        )
        self._events = msgspec.json.Decoder(event)
        self._page = msgspec.json.Decoder(page)
        self._version = msgspec.json.Decoder(_VersionedEvent)
        self._loose_event = msgspec.json.Decoder(_LooseEvent)
        self._loose_page = msgspec.json.Decoder(_LoosePage)
        self._bookmark = msgspec.json.Decoder(_Bookmark)
        self._anything = msgspec.json.Decoder()
        self._where = "from the API server"

    def page(self, data: bytes | bytearray) -> Page:
        """Read a page of a list; raise ClusterError where it is none."""
        try:
            page: Any = self._page.decode(data)
        except _Undecodable:
            return self._page_one_by_one(bytes(data))
        return Page(tuple(map(self._seen, page.items or ())), page.metadata.resource_version, page.metadata.continues)

    def _page_one_by_one(self, data: bytes) -> Page:
        try:
            loose = self._decoded(self._loose_page, data)
            metadata, items = loose.metadata, [bytes(item) for item in loose.items or ()]
        except _Undecodable as error:
            whole = scan.members(data) if scan.is_whole(data) else {}
            try:
                metadata = msgspec.json.decode(whole.get("metadata", b""), type=_ListMeta)
            except _Undecodable:
                whole = {}
            if whole.get("items", b"")[:1] != b"[":
                msg = f"its list cannot be read: {error}"
                raise ClusterError(msg) from error
            items = list(scan.items(whole["items"]))
        return Page(tuple(map(self._seen_loosely, items)), metadata.resource_version, metadata.continues)

    def events(self, lines: bytes) -> Events:
        """Read whole lines of a watch, an event each; raise ClusterError where one is none."""
        try:
            found: list[Any] = self._events.decode_lines(lines)
            if found and _EVENTS.issuperset({event.type for event in found}):
                version = self._last_version(lines)
                return Events(tuple(self._happened(event) for event in found), version)
        except _Undecodable:
            pass
        return self._events_one_by_one(lines)

    def _last_version(self, lines: bytes) -> str:
        stripped = lines.rstrip()
        return self._version.decode(stripped[stripped.rfind(b"\n") + 1 :]).object.metadata.resource_version

    def _events_one_by_one(self, lines: bytes) -> Events:
        items: list[Seen | Bookmark | Failure] = []
        version = ""
        for line in lines.split(b"\n"):
            if not line.strip():
                continue
            try:
                sort, found = self._taken_apart(line)
                if sort == "ERROR":
                    items.append(Failure(found, version))
                version = self._version_of(found, version) if sort in _EVENTS else ""
                items += self._loosely(sort, found)
            except _Undecodable as error:
                msg = f"an event of its watch cannot be read: {in_one_line(str(error))}"
                raise ClusterError(msg) from error
        return Events(tuple(items), version)

    def _taken_apart(self, line: bytes) -> tuple[str, bytes]:
        """Return what sort of event a line is, and of what; raise what a decoder raises where it is none at all."""
        try:
            event = self._decoded(self._loose_event, line)
        except _Undecodable:
            whole = scan.members(line) if scan.is_whole(line) else {}
            if scan.text(whole.get("type", b"")) not in _EVENTS or whole.get("object", b"")[:1] != b"{":
                raise
            return scan.text(whole["type"]), whole["object"]
        return event.type, bytes(event.object)

    @staticmethod
    def _decoded(decoder: Any, data: bytes) -> Any:  # noqa: ANN401 - one of those made above
        """Decode, without what lies too deep if it has to be."""
        try:
            return decoder.decode(data)
        except RecursionError:
            return decoder.decode(scan.cut(data, DEPTH))

    @staticmethod
    def _version_of(found: bytes, before: str) -> str:
        """Return the resource version of an object, also of one that cannot be decoded; ``before`` where it has none.

        What is not an object at all raises what a decoder raises.
        """
        try:
            return msgspec.json.decode(found, type=_Versioned).metadata.resource_version or before
        except _Undecodable:
            if found[:1] != b"{":
                raise
        return scan.text(scan.members(scan.members(found).get("metadata", b"")).get("resourceVersion", b"")) or before

    def _loosely(self, sort: str, found: bytes) -> Iterator[Seen | Bookmark]:
        match sort:
            case "ADDED" | "MODIFIED":
                yield self._seen_loosely(found)
            case "DELETED":
                yield Seen(self._key_in(found), None)
            case "BOOKMARK":
                metadata = self._bookmark.decode(found).metadata
                last = metadata.annotations is not None and metadata.annotations.end_of_list == "true"
                yield Bookmark(metadata.resource_version, last=last)

    def _happened(self, event: Any) -> Seen:  # noqa: ANN401 - made above
        if event.type == "DELETED":
            return Seen(event.object.key, None)
        return self._seen(event.object)

    def _seen(self, found: KubeObject) -> Seen:
        """Check what has the right types."""
        key = found.key
        wrong = faults(found)
        if wrong:
            return Seen(key, None, tuple(sentences_about(self._name(key), wrong, "; left out")))
        found, passed_over = tidied(found)
        remarks = tuple(sentences_about(self._name(key), passed_over, "")) if passed_over else ()
        return Seen(key, found, remarks)

    def _seen_loosely(self, raw: bytes) -> Seen:
        """Read what may have any shape."""
        try:
            document = self._decoded(self._anything, raw)
            document = document if isinstance(document, dict) else {}
            found, remarks = checked(self._where, document, self._kind)
        except _Undecodable as error:
            key = self._key_in(raw)
            name = self._name(key) if key is not None else f"{self._where}: {self._kind.__name__}"
            return Seen(key, None, (f"{name}: it cannot be read: {in_one_line(str(error))}; left out",))
        return Seen(self._key(document) if found is None else found.key, found, tuple(remarks))

    def _key_in(self, raw: bytes) -> NamespacedName | None:
        """Return who an object is that need not be right, nor one that can be decoded."""
        try:
            return msgspec.json.decode(raw, type=_Who).metadata.key
        except _Undecodable:
            pass
        metadata = scan.members(scan.members(raw).get("metadata", b""))
        return self._key(
            {
                "metadata": {
                    field: scan.text(metadata[field]) for field in _WhoMeta.__struct_fields__ if field in metadata
                }
            }
        )

    def _key(self, document: dict[str, Any]) -> NamespacedName | None:
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
            return None
        namespace = metadata.get("namespace", "")
        return NamespacedName(namespace if isinstance(namespace, str) else "", name)

    def _name(self, key: NamespacedName) -> str:
        return f"{self._kind.__name__} {plain(str(key).lstrip('/'))}"
