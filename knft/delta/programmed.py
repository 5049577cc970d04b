"""The programmed contents of one family's table: what the last commit left in the kernel.

They are stored by owner, so that a sync compares only what changed. Several Service ports may own the same member
(element of a set): all ports of a Service share its cluster IP, and an endpoint may serve several Services. Members are
counted, and removed with their last owner.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from knft.delta.diff import ContentsDiff, diff_contents
from knft.nft.objects import Array, ArrayName, Chain, Contents, Entry, Key

MAX_RETRY_DELAY_SECONDS = 3600.0
"""Longest delay before something that the kernel refused is tried again; delays double up to it."""

Owner = TypeVar("Owner", bound=Hashable)
_Position = tuple[str, Key]
_Member = tuple[str, Key]

MAX_COMPACT = 16
"""The most elements and chains of contents that are stored as tuples."""


class _CompactContents(Struct, frozen=True, gc=False):
    """Contents as tuples: the containers of 25 000 Contents with few elements take 14 MiB more."""

    positions: tuple[_Position, ...]
    entries: tuple[Entry, ...]
    names: tuple[ArrayName, ...]
    arrays: tuple[Array, ...]
    members: tuple[_Member, ...]
    chains: tuple[Chain, ...]

    def unpacked(self) -> Contents:
        return Contents(
            dict(zip(self.positions, self.entries, strict=True)),
            dict(zip(self.names, self.arrays, strict=True)),
            set(self.members),
            {chain.name: chain for chain in self.chains},
        )


def _has_arrays(found: Contents, contents: Contents) -> bool:
    return all(found.arrays.get(name) == array for name, array in contents.arrays.items())


def _array_elements(contents: Contents | _CompactContents) -> int:
    arrays = contents.arrays.values() if isinstance(contents, Contents) else contents.arrays
    return sum(len(array) - array.count(None) for array in arrays)


def _compact(contents: Contents) -> Contents | _CompactContents:
    size = len(contents.entries) + len(contents.arrays) + len(contents.members) + len(contents.chains)
    if size > MAX_COMPACT:
        return contents
    return _CompactContents(
        tuple(contents.entries),
        tuple(contents.entries.values()),
        tuple(contents.arrays),
        tuple(contents.arrays.values()),
        tuple(contents.members),
        tuple(contents.chains.values()),
    )


class EmptiedChain(Struct, frozen=True):
    """A chain that was emptied and waits to be deleted; times are in seconds.

    ``since`` is when it was emptied or last refused. Kernels before 6.2 refuse to delete a chain until they have freed
    the element that led to it.
    """

    since: float
    delay: float = 1.0

    @property
    def deletable_at(self) -> float:
        """The earliest time of the next attempt to delete it."""
        return self.since + self.delay

    def retry_later(self, now: float) -> "EmptiedChain":
        """Return the state after a refusal, with twice the delay."""
        return EmptiedChain(now, min(2 * self.delay, MAX_RETRY_DELAY_SECONDS))


class ProgrammedContents(Generic[Owner]):
    """The contents of one table by owner, and the names of its other objects.

    ``chains`` are the existing chains without an owner: constant chains (independent of Services), marker chains
    (empty; their names contain a digest of the layout or of the constant rules), and shared chains (pool and policy
    chains, which Services share). ``containers`` are the sets and maps that the table had when it was read.
    ``emptied_chains`` belonged to a Service port; they have no rules any more and wait to be deleted.
    """

    def __init__(self) -> None:
        """Start with an empty table."""
        self.chains: set[str] = set()
        self.containers: set[str] = set()
        self.emptied_chains: dict[str, EmptiedChain] = {}
        self._contents: dict[Owner, Contents | _CompactContents] = {}
        self._members: Counter[_Member] = Counter()

    def merged_contents(self, owners: Iterable[Owner]) -> Contents:
        """Return the contents of these owners, merged."""
        merged = Contents.empty()
        for owner in owners:
            contents = self.get(owner)
            if contents is not None:
                merged.update(contents)
        return merged

    def get(self, owner: Owner) -> Contents | None:
        """Return the contents of one owner; the caller must not modify them."""
        stored = self._contents.get(owner)
        return stored.unpacked() if isinstance(stored, _CompactContents) else stored

    def chains_of(self, owner: Owner) -> Collection[Chain]:
        """Return the chains of one owner."""
        stored = self._contents.get(owner)
        if stored is None:
            return ()
        return stored.chains if isinstance(stored, _CompactContents) else stored.chains.values()

    def diff(self, desired: Mapping[Owner, Contents | None]) -> ContentsDiff:
        """Return the changes that give these owners their desired contents (None: no contents)."""
        old = self.merged_contents(desired)
        new = Contents.empty()
        for contents in desired.values():
            if contents is not None:
                new.update(contents)
        shared = self._shared_with_others(old.members | new.members, desired)
        old.members -= shared
        new.members -= shared
        return diff_contents(old, new)

    def record_chain_changes(self, changes: ContentsDiff, emptied: Iterable[str], now: float) -> None:
        """Record that chains with an owner were changed: ``emptied`` ones wait to be deleted, written ones do not.

        ``now`` is in seconds.
        """
        self.record_deleted(chain.name for chain in (*changes.changed_chains, *changes.new_chains))
        self.emptied_chains.update(dict.fromkeys(emptied, EmptiedChain(now)))

    def record_deleted(self, names: Iterable[str]) -> None:
        """Record that these chains no longer wait to be deleted."""
        for name in names:
            self.emptied_chains.pop(name, None)

    def record_refused_deletions(self, names: Iterable[str], now: float) -> None:
        """Record that the kernel refused to delete these chains, probably because a foreign rule refers to them."""
        for name in names:
            if name in self.emptied_chains:
                self.emptied_chains[name] = self.emptied_chains[name].retry_later(now)

    def _shared_with_others(self, members: set[_Member], owners: Iterable[Owner]) -> set[_Member]:
        own = Counter(member for owner in owners if owner in self._contents for member in self._contents[owner].members)
        return {member for member in members if self._members[member] > own[member]}

    def apply(self, desired: Mapping[Owner, Contents | None]) -> None:
        """Record that a commit gave these owners their desired contents."""
        for owner, contents in desired.items():
            before = self._contents.get(owner)
            if before is not None:
                self._release(before.members)
            # Replaced, so that the audit in another thread finds the old or the new contents.
            if contents is not None:
                self._contents[owner] = _compact(contents)
                self._members.update(contents.members)
            else:
                self._contents.pop(owner, None)

    def add_chains(self, owner: Owner, chains: Mapping[str, Chain]) -> None:
        """Record further chains of an owner that has contents; another thread must not read them meanwhile."""
        if chains:
            self._unpack(owner).chains.update(chains)

    def claim(self, previous: Owner, owner: Owner, contents: Contents) -> bool:
        """Move ``contents`` from ``previous`` to ``owner``, which has none; return False if ``previous`` differs.

        In that case nothing moves. Members that other owners have too may be missing from ``previous``. Another thread
        must not read meanwhile.
        """
        if previous not in self._contents or owner in self._contents or contents.chains:
            return False
        found = self._unpack(previous)
        # The comparisons of views are in C.
        if not (
            contents.entries.items() <= found.entries.items()
            and _has_arrays(found, contents)
            and contents.members <= self._members.keys()
        ):
            return False
        for position in contents.entries:
            del found.entries[position]
        for name in contents.arrays:
            del found.arrays[name]
        for member in contents.members:
            if member in found.members:
                found.members.discard(member)
            else:
                self._members[member] += 1
        self._contents[owner] = _compact(contents)
        return True

    def _unpack(self, owner: Owner) -> Contents:
        """Return the stored contents of an owner, unpacked, so that the caller can change them."""
        stored = self._contents[owner]
        if isinstance(stored, _CompactContents):
            stored = self._contents[owner] = stored.unpacked()
        return stored

    def _release(self, members: Iterable[_Member]) -> None:
        for member in members:
            self._members[member] -= 1
            if not self._members[member]:
                del self._members[member]

    def element_count(self) -> int:
        """Return how many elements the sets and maps have; also from another thread."""
        stored = list(self._contents.values())
        entries = sum(len(contents.entries) for contents in stored)
        return entries + sum(map(_array_elements, stored)) + len(self._members)

    def all_contents(self, excluded: Collection[Owner] = ()) -> Contents:
        """Return the contents of all owners except ``excluded``, merged; also from another thread."""
        listed = (contents for owner, contents in list(self._contents.items()) if owner not in excluded)
        return Contents.merged(each.unpacked() if isinstance(each, _CompactContents) else each for each in listed)
