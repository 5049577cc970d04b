"""From bytes to objects: events of a watch and pages of a list, straight into the structs of ``model.objects``.

What fits the types, as nearly everything does, is decoded as a whole; only where something does not, item for item, so
that it is named and the others are taken.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from knft.errors import ClusterError
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject
from knft.source.decode import checked, sentences_about
from knft.source.validate import faults, tidied

END_OF_LIST = "k8s.io/initial-events-end"
"""The annotation of the bookmark that tells that everything has been listed."""
_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})


class _VersionMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct, frozen=True):
    metadata: _VersionMeta


class _VersionedEvent(Struct, frozen=True):
    object: _Versioned


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
        self._where = "from the API server"

    def page(self, data: bytes | bytearray) -> Page:
        """Read a page of a list; raise ClusterError where it is none."""
        try:
            page: Any = self._page.decode(data)
            return Page(
                tuple(map(self._seen, page.items or ())), page.metadata.resource_version, page.metadata.continues
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            loose = self._loose_page.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            msg = f"its list cannot be read: {error}"
            raise ClusterError(msg) from error
        items = tuple(self._seen_loosely(item) for item in loose.items or ())
        return Page(items, loose.metadata.resource_version, loose.metadata.continues)

    def events(self, lines: bytes) -> Events:
        """Read whole lines of a watch, an event each; raise ClusterError where one is none."""
        try:
            found: list[Any] = self._events.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._events_one_by_one(lines)
        if not found or not _EVENTS.issuperset({event.type for event in found}):
            return self._events_one_by_one(lines)
        return Events(tuple(self._happened(event) for event in found), self._last_version(lines))

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
                event = self._loose_event.decode(line)
                if event.type == "ERROR":
                    items.append(Failure(bytes(event.object), version))
                known = event.type in _EVENTS
                version = self._version.decode(line).object.metadata.resource_version if known else ""
                items += self._loosely(event)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                msg = f"an event of its watch cannot be read: {error}"
                raise ClusterError(msg) from error
        return Events(tuple(items), version)

    def _loosely(self, event: _LooseEvent) -> Iterator[Seen | Bookmark]:
        match event.type:
            case "ADDED" | "MODIFIED":
                yield self._seen_loosely(event.object)
            case "DELETED":
                yield Seen(self._key(self._document(event.object)), None)
            case "BOOKMARK":
                metadata = self._bookmark.decode(event.object).metadata
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

    def _seen_loosely(self, raw: msgspec.Raw) -> Seen:
        """Read what may have any shape."""
        document = self._document(raw)
        found, remarks = checked(self._where, document, self._kind)
        return Seen(self._key(document) if found is None else found.key, found, tuple(remarks))

    @staticmethod
    def _document(raw: msgspec.Raw) -> dict[str, Any]:
        document = msgspec.json.decode(raw)
        return document if isinstance(document, dict) else {}

    def _key(self, document: dict[str, Any]) -> NamespacedName | None:
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
            return None
        namespace = metadata.get("namespace", "")
        return NamespacedName(namespace if isinstance(namespace, str) else "", name)

    def _name(self, key: NamespacedName) -> str:
        return f"{self._kind.__name__} {str(key).lstrip('/')}"
