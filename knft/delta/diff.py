"""The difference between two contents of a table."""

from itertools import zip_longest

from msgspec import Struct

from knft.nft.objects import Array, ArrayName, Chain, Contents, Key, Value


class ContentsDiff(Struct, frozen=True):
    """Elements to remove and to add, by container; an element whose value changes is in both.

    The chains are only those that belong to one Service port: the contents include no shared chains.
    ``changed_chains`` exist with other rules, ``new_chains`` do not exist yet, and ``emptied_chains`` are the names of
    those to empty, since the new contents do not include them.
    """

    removed: dict[str, tuple[Key, ...]]
    added: dict[str, dict[Key, Value]]
    changed_chains: tuple[Chain, ...] = ()
    emptied_chains: tuple[str, ...] = ()
    new_chains: tuple[Chain, ...] = ()


class _ElementChanges:
    def __init__(self) -> None:
        self.removed: dict[str, list[Key]] = {}
        self.added: dict[str, dict[Key, Value]] = {}

    def remove(self, container: str, key: Key) -> None:
        self.removed.setdefault(container, []).append(key)

    def add(self, container: str, key: Key, value: Value) -> None:
        self.added.setdefault(container, {})[key] = value

    def add_array(self, name: ArrayName, array: Array) -> None:
        """Add the elements of an array; in the first sync these are nearly all elements of the table."""
        prefix = name.prefix
        elements = {(*prefix, index): target for index, target in enumerate(array) if target is not None}
        if elements:
            self.added.setdefault(name.container, {}).update(elements)

    def replace(self, container: str, key: Key, old: Value, new: Value) -> None:
        if old != new:
            if old is not None:
                self.remove(container, key)
            if new is not None:
                self.add(container, key, new)


def diff_contents(old: Contents, new: Contents) -> ContentsDiff:
    """Return the changes from ``old`` to ``new``."""
    changes = _ElementChanges()
    _compare_entries(old, new, changes)
    _compare_arrays(old, new, changes)
    # Sorted, because the order of a set differs between processes.
    for container, key in sorted(old.members - new.members):
        changes.remove(container, key)
    for container, key in sorted(new.members - old.members):
        changes.add(container, key, None)
    removed = {container: tuple(keys) for container, keys in changes.removed.items()}
    changed_chains = tuple(chain for name, chain in new.chains.items() if old.chains.get(name, chain) != chain)
    new_chains = tuple(chain for name, chain in new.chains.items() if name not in old.chains)
    return ContentsDiff(
        removed, changes.added, changed_chains, tuple(sorted(old.chains.keys() - new.chains.keys())), new_chains
    )


def _compare_entries(old: Contents, new: Contents, changes: _ElementChanges) -> None:
    # A position is a container and a key.
    for position, entry in old.entries.items():
        changes.replace(*position, entry, new.entries.get(position))
    for position, entry in new.entries.items():
        if position not in old.entries:
            changes.add(*position, entry)


def _compare_arrays(old: Contents, new: Contents, changes: _ElementChanges) -> None:
    for name, array in old.arrays.items():
        desired = new.arrays.get(name, ())
        # One comparison in C for unchanged arrays: all but one, if a Service has many frontends.
        if array == desired:
            continue
        for index, (before, after) in enumerate(zip_longest(array, desired)):
            if before != after:
                changes.replace(name.container, (*name.prefix, index), before, after)
    for name, array in new.arrays.items():
        if name not in old.arrays:
            changes.add_array(name, array)
