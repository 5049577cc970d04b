"""Catalogue: which objects a set of files holds, and what changes when one of them does.

Two files, or two documents of one, may hold the same object; the first in the order of paths and documents counts.
"""

from typing import NamedTuple

from msgspec import Struct

from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ObjectChange
from knft.source.decode import DecodedManifest
from knft.source.files import format_path


class ObjectKey(NamedTuple):
    """What makes two objects the same one."""

    kind: str
    name: NamespacedName

    def __str__(self) -> str:
        """Return the object as a person would name it."""
        return f"{self.kind} {str(self.name).lstrip('/')}"


class ManifestLocation(NamedTuple):
    """Where an object stands: its file, its number among the file's objects, and words for that."""

    path: str
    number: int
    description: str = ""


class Conflict(Struct, frozen=True):
    """Two documents of one name that say different things; ``used`` is the one that counts."""

    key: ObjectKey
    used: ManifestLocation
    ignored: ManifestLocation

    def __str__(self) -> str:
        """Return a sentence for the operator about the document that does not count."""
        used, ignored = self.used, self.ignored
        if used.path == ignored.path:
            return f"{self.key}: {ignored.description} and {used.description} of this file differ; {used.description} counts"
        return f"{self.key}: {format_path(used.path)} has it too, and they differ; that one counts"


class Catalogue:
    """The objects of every file."""

    def __init__(self) -> None:
        """Start without files."""
        self._keys: dict[str, tuple[ObjectKey, ...]] = {}
        self._places: dict[ObjectKey, dict[ManifestLocation, KubeObject]] = {}

    def put(self, path: str, decoded: DecodedManifest) -> list[ObjectChange]:
        """Replace what ``path`` holds; return what that changes."""
        found = {
            ManifestLocation(path, index, where): (ObjectKey(type(item).__name__, item.key), item)
            for index, (item, where) in enumerate(zip(decoded.objects, decoded.locations, strict=True))
        }
        touched = dict.fromkeys((*self._keys.get(path, ()), *(key for key, _ in found.values())))
        before = {key: self._current(key) for key in touched}
        for key in self._keys.pop(path, ()):
            places = self._places[key]
            self._places[key] = {place: item for place, item in places.items() if place.path != path}
        for place, (key, item) in found.items():
            self._places.setdefault(key, {})[place] = item
        self._keys[path] = tuple(dict.fromkeys(key for key, _ in found.values()))
        for key in touched:
            if not self._places[key]:
                del self._places[key]
        return [ObjectChange(before[key], after) for key in touched if (after := self._current(key)) != before[key]]

    def remove(self, path: str) -> list[ObjectChange]:
        """Forget a file; return what that changes."""
        changes = self.put(path, DecodedManifest(()))
        del self._keys[path]
        return changes

    def conflicts(self, path: str) -> list[Conflict]:
        """Return where documents of ``path`` and others of the same name disagree."""
        found = []
        for key in self._keys.get(path, ()):
            places = sorted(self._places[key])
            used = places[0]
            found += [
                Conflict(key, used, place)
                for place in places[1:]
                if self._places[key][place] != self._places[key][used]
            ]
        return found

    def _current(self, key: ObjectKey) -> KubeObject | None:
        places = self._places.get(key)
        return places[min(places)] if places else None
