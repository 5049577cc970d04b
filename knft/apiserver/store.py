"""Store: the local copy of one resource's objects, and the changes that events make to it.

It performs no I/O. An event for an object whose fields that knft reads are unchanged makes no change.
"""

from collections.abc import Iterable, Iterator

from knft.apiserver.decoder import ObjectEvent
from knft.model.names import NamespacedName
from knft.model.objects import KubeObject, ObjectChange
from knft.source.select import is_selected


class Store:
    """The valid and selected objects of one resource, and the warnings about each."""

    def __init__(self, node_name: str) -> None:
        """Start empty; of Nodes, only ``node_name`` is stored."""
        self._node_name = node_name
        self._objects: dict[NamespacedName, KubeObject] = {}
        self._warnings: dict[NamespacedName, tuple[str, ...]] = {}
        self._listed: dict[NamespacedName, KubeObject] = {}
        """The objects of a list that is not complete yet."""
        self._listed_with_warnings: set[NamespacedName] = set()
        self.unreported_warnings: list[str] = []
        self.unreported_ended: list[str] = []
        """Reported warnings that no longer apply."""
        self.unreported_invalid: list[tuple[NamespacedName, str]] = []
        """Invalid objects that have not been reported, each with the logged text."""

    @property
    def objects(self) -> dict[NamespacedName, KubeObject]:
        """The objects by name; not to be modified."""
        return self._objects

    def apply_events(self, events: Iterable[ObjectEvent]) -> Iterator[ObjectChange]:
        """Apply the events of a watch in their order; yield the changes."""
        for event in events:
            self._record_warnings(event)
            if event.key is None:
                continue
            current = self._selected(event)
            previous = self._objects.get(event.key)
            if current is not None:
                if current == previous:
                    continue
                self._objects[event.key] = current
            elif previous is not None:
                del self._objects[event.key]
            else:
                continue
            yield ObjectChange(previous, current, event.resource_version)

    def begin_list(self) -> None:
        """Start a new list, and drop one that is not complete."""
        self._listed, self._listed_with_warnings = {}, set()

    def add_listed(self, events: Iterable[ObjectEvent]) -> None:
        """Add objects to the list."""
        for event in events:
            self._record_warnings(event)
            if event.key is None:
                continue
            if event.warnings:
                self._listed_with_warnings.add(event.key)
            current = self._selected(event)
            if current is None:
                self._listed.pop(event.key, None)
            else:
                previous = self._objects.get(event.key)
                # Two equal copies would need twice the memory.
                self._listed[event.key] = previous if previous is not None and previous == current else current

    def finish_list(self) -> list[ObjectChange]:
        """Replace all objects with those of the list; return the changes."""
        listed, self._listed = self._listed, {}
        before = self._objects
        removed = [ObjectChange(item, None) for key, item in before.items() if key not in listed]
        changed = [
            ObjectChange(previous, item) for key, item in listed.items() if (previous := before.get(key)) is not item
        ]
        self._objects = listed
        for key in self._warnings.keys() - self._listed_with_warnings:
            self.unreported_ended += self._warnings.pop(key)
        return removed + changed

    def _selected(self, event: ObjectEvent) -> KubeObject | None:
        return event.object if event.object is not None and is_selected(event.object, self._node_name) else None

    def _record_warnings(self, event: ObjectEvent) -> None:
        """Remember the warnings about an object, so that each is reported once while it applies."""
        if event.key is None:
            self.unreported_warnings += event.warnings
            return
        if not event.warnings:
            self.unreported_ended += self._warnings.pop(event.key, ())
            return
        before = self._warnings.get(event.key, ())
        new = [warning for warning in event.warnings if warning not in before]
        self.unreported_warnings += new
        if new and event.object is None:
            self.unreported_invalid.append((event.key, new[0]))
        self.unreported_ended += [warning for warning in before if warning not in event.warnings]
        self._warnings[event.key] = event.warnings
