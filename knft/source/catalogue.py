"""Catalogue: the objects of a set of files, and the changes when a file changes.

If several documents define an object, the first in the order of paths and documents is used.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ObjectChange, Service
from knft.source.decode import DecodedManifest
from knft.source.files import format_path


class ObjectKey(NamedTuple):
    """The identity of an object."""

    kind: str
    name: NamespacedName

    def __str__(self) -> str:
        """Return the object's kind and name for a message."""
        return f"{self.kind} {str(self.name).lstrip('/')}"


class ManifestLocation(NamedTuple):
    """The location of an object: file, number in the file, and a description for messages."""

    path: str
    number: int
    description: str = ""


class Conflict(Struct, frozen=True):
    """Two documents define an object differently; ``used`` is the one in use."""

    key: ObjectKey
    used: ManifestLocation
    ignored: ManifestLocation

    def __str__(self) -> str:
        """Return a message about the document that is ignored."""
        used, ignored = self.used, self.ignored
        if used.path == ignored.path:
            differing = f"{ignored.description} and {used.description} of this file differ"
            return f"{self.key}: {differing}; using {used.description}"
        return f"{self.key}: {format_path(used.path)} defines it differently; using that definition"


def object_keys(objects: Iterable[KubeObject]) -> frozenset[ObjectKey]:
    """Return the identities of objects."""
    return frozenset(ObjectKey(type(item).__name__, item.key) for item in objects)


class Catalogue:
    """The objects of every file."""

    def __init__(self) -> None:
        """Start without files."""
        self._keys: dict[str, tuple[ObjectKey, ...]] = {}
        self._locations: dict[ObjectKey, dict[ManifestLocation, KubeObject]] = {}

    def put(self, path: str, decoded: DecodedManifest) -> list[ObjectChange]:
        """Replace the objects of ``path``; return the resulting changes."""
        new_items = {
            ManifestLocation(path, index, description): (ObjectKey(type(item).__name__, item.key), item)
            for index, (item, description) in enumerate(zip(decoded.objects, decoded.locations, strict=True))
        }
        touched = dict.fromkeys((*self._keys.get(path, ()), *(key for key, _ in new_items.values())))
        before = {key: self._current(key) for key in touched}
        for key in self._keys.pop(path, ()):
            locations = self._locations[key]
            self._locations[key] = {location: item for location, item in locations.items() if location.path != path}
        for location, (key, item) in new_items.items():
            self._locations.setdefault(key, {})[location] = item
        self._keys[path] = tuple(dict.fromkeys(key for key, _ in new_items.values()))
        for key in touched:
            if not self._locations[key]:
                del self._locations[key]
        return [ObjectChange(before[key], after) for key in touched if (after := self._current(key)) != before[key]]

    def remove(self, path: str) -> list[ObjectChange]:
        """Remove a file; return the resulting changes."""
        changes = self.put(path, DecodedManifest(()))
        del self._keys[path]
        return changes

    def keys(self, path: str) -> frozenset[ObjectKey]:
        """Return the identities of the objects of ``path``."""
        return frozenset(self._keys.get(path, ()))

    def has_services(self, path: str) -> bool:
        """Tell whether ``path`` defines a Service."""
        return any(key.kind == Service.__name__ for key in self._keys.get(path, ()))

    def conflicts(self, path: str) -> list[Conflict]:
        """Return the objects of ``path`` that another document defines differently."""
        conflicts = []
        for key in self._keys.get(path, ()):
            locations = sorted(self._locations[key])
            used = locations[0]
            conflicts += [
                Conflict(key, used, location)
                for location in locations[1:]
                if self._locations[key][location] != self._locations[key][used]
            ]
        return conflicts

    def _current(self, key: ObjectKey) -> KubeObject | None:
        locations = self._locations.get(key)
        return locations[min(locations)] if locations else None
