"""Held: the objects of one resource as they were last seen, and what changes when they are seen again.

Pure. An object that is seen as it was makes no change: the API server says more about objects than knft reads.
"""

from collections.abc import Iterable, Iterator

from knft.apiserver.objects import Seen
from knft.model.names import NamespacedName
from knft.model.objects import Change, KubeObject
from knft.source.select import is_selected


class Held:
    """What is known of one resource."""

    def __init__(self, node_name: str) -> None:
        """Start with nothing; of Nodes, only ``node_name`` counts."""
        self._node_name = node_name
        self._objects: dict[NamespacedName, KubeObject] = {}
        self._remarks: dict[NamespacedName, tuple[str, ...]] = {}
        self._list: dict[NamespacedName, KubeObject] = {}
        """What a list that is not complete yet has so far."""
        self._remarked: set[NamespacedName] = set()
        """Of which objects of that list something was said."""
        self.new_remarks: list[str] = []
        """What is to be said, and has not been."""
        self.new_left_out: list[tuple[NamespacedName, str]] = []
        """The objects that cannot be meant, and why, each as it is to be said."""

    @property
    def objects(self) -> dict[NamespacedName, KubeObject]:
        """The objects by their names; not to be changed."""
        return self._objects

    def take(self, seen: Iterable[Seen]) -> Iterator[Change]:
        """Take in objects in their order; yield what changes."""
        for item in seen:
            self._note_remarks(item)
            if item.key is None:
                continue
            current = self._wanted(item)
            previous = self._objects.get(item.key)
            if current is not None:
                if current == previous:
                    continue
                self._objects[item.key] = current
            elif previous is not None:
                del self._objects[item.key]
            else:
                continue
            yield Change(previous, current)

    def begin_list(self) -> None:
        """Begin a list anew; what an earlier one had is forgotten unless it was completed."""
        self._list, self._remarked = {}, set()

    def take_listed(self, seen: Iterable[Seen]) -> None:
        """Take in some objects of a list."""
        for item in seen:
            self._note_remarks(item)
            if item.key is None:
                continue
            if item.remarks:
                self._remarked.add(item.key)
            current = self._wanted(item)
            if current is None:
                self._list.pop(item.key, None)
            else:
                previous = self._objects.get(item.key)
                # Two equal ones at once would be twice the memory.
                self._list[item.key] = previous if previous is not None and previous == current else current

    def end_list(self) -> list[Change]:
        """Have the list count; return what that changes: what is no longer in it is gone."""
        listed, self._list = self._list, {}
        before = self._objects
        gone = [Change(item, None) for key, item in before.items() if key not in listed]
        changed = [Change(previous, item) for key, item in listed.items() if (previous := before.get(key)) is not item]
        self._objects = listed
        for key in self._remarks.keys() - self._remarked:
            del self._remarks[key]
        return gone + changed

    def _wanted(self, item: Seen) -> KubeObject | None:
        return item.object if item.object is not None and is_selected(item.object, self._node_name) else None

    def _note_remarks(self, item: Seen) -> None:
        """Keep what is said about an object, to say it once as long as it holds."""
        if item.key is None:
            self.new_remarks += item.remarks
            return
        if not item.remarks:
            self._remarks.pop(item.key, None)
            return
        before = self._remarks.get(item.key, ())
        new = [remark for remark in item.remarks if remark not in before]
        self.new_remarks += new
        if new and item.object is None:
            self.new_left_out.append((item.key, new[0]))
        self._remarks[item.key] = item.remarks
