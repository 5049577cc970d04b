"""Catalogue: which objects a set of files holds, and what changes when one of them does.

Two files, or two documents of one, may hold the same object; the first in the order of paths and documents counts.
"""

from typing import NamedTuple

from msgspec import Struct

from knft.model.names import NamespacedName
from knft.model.objects import Change, KubeObject
from knft.source.decode import Decoded
from knft.source.files import shown_path


class ObjectKey(NamedTuple):
    """What makes two objects the same one."""

    kind: str
    name: NamespacedName

    def __str__(self) -> str:
        """Return the object as a person would name it."""
        return f"{self.kind} {str(self.name).lstrip('/')}"


class Place(NamedTuple):
    """Where an object stands: its file, its number among the file's objects, and words for that."""

    path: str
    number: int
    words: str = ""


class Conflict(Struct, frozen=True):
    """Two documents of one name that say different things; ``used`` is the one that counts."""

    key: ObjectKey
    used: Place
    ignored: Place

    def __str__(self) -> str:
        """Return a sentence for the operator about the document that does not count."""
        used, ignored = self.used, self.ignored
        if used.path == ignored.path:
            return f"{self.key}: {ignored.words} and {used.words} of this file differ; {used.words} counts"
        return f"{self.key}: {shown_path(used.path)} has it too, and they differ; that one counts"


class Catalogue:
    """The objects of every file."""

    def __init__(self) -> None:
        """Start without files."""
        self._keys: dict[str, tuple[ObjectKey, ...]] = {}
        self._places: dict[ObjectKey, dict[Place, KubeObject]] = {}

    def put(self, path: str, decoded: Decoded) -> list[Change]:
        """Replace what ``path`` holds; return what that changes."""
        found = {
            Place(path, index, where): (ObjectKey(type(item).__name__, item.key), item)
            for index, (item, where) in enumerate(zip(decoded.objects, decoded.places, strict=True))
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
        return [Change(before[key], after) for key in touched if (after := self._current(key)) != before[key]]

    def remove(self, path: str) -> list[Change]:
        """Forget a file; return what that changes."""
        changes = self.put(path, Decoded(()))
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
