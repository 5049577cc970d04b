"""What one family's table holds, kept by who asked for it, so that a sync compares only what changed.

Several Service ports may ask for the same member of a set (one cluster IP has several ports; one endpoint may
serve several Services): members are counted, and removed with their last owner.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from knft.delta.diff import ContentsDiff, diff_contents
from knft.nft.objects import Contents, Key

MAX_DELAY_SECONDS = 3600.0

Owner = TypeVar("Owner", bound=Hashable)
_Member = tuple[str, Key]


class EmptiedChain(Struct, frozen=True):
    """An empty chain: when it was emptied, or could not be deleted last, and how long it waits from then, in seconds.

    Kernels before 6.2 refuse to delete it while an element that led to it is freed.
    """

    since: float
    delay: float = 1.0

    @property
    def deletable_at(self) -> float:
        """From when it can be deleted."""
        return self.since + self.delay

    def retry_later(self, now: float) -> "EmptiedChain":
        """Return what it is where it could not be deleted."""
        return EmptiedChain(now, min(2 * self.delay, MAX_DELAY_SECONDS))


class ProgrammedContents(Generic[Owner]):
    """The contents of one table by owner.

    ``chains`` are the names of the shared chains that exist, ``containers`` those of sets and maps. ``unwanted`` are
    owned chains that are empty now and wait to be deleted.
    """

    def __init__(self) -> None:
        """Start from a table without chains and elements."""
        self.chains: set[str] = set()
        self.containers: set[str] = set()
        self.emptied_chains: dict[str, EmptiedChain] = {}
        self._contents: dict[Owner, Contents] = {}
        self._members: Counter[_Member] = Counter()

    def merged_contents(self, owners: Iterable[Owner]) -> Contents:
        """Return what these owners asked for, joined."""
        joined = Contents.empty()
        for owner in owners:
            if owner in self._contents:
                joined.update(self._contents[owner])
        return joined

    def get(self, owner: Owner) -> Contents | None:
        """Return what one owner has, the value itself and no copy."""
        return self._contents.get(owner)

    def diff(self, wanted: Mapping[Owner, Contents | None]) -> ContentsDiff:
        """Return what has to change for these owners to get what they want (None: to be gone)."""
        old = self.merged_contents(wanted)
        new = Contents.empty()
        for contents in wanted.values():
            if contents is not None:
                new.update(contents)
        shared = self._held_by_others(old.members | new.members, wanted)
        old.members -= shared
        new.members -= shared
        return diff_contents(old, new)

    def record_emptied(self, changes: ContentsDiff, now: float) -> None:
        """Note which owned chains a commit has emptied, or written again; ``now`` is in seconds."""
        self.record_deleted(chain.name for chain in (*changes.changed_chains, *changes.new_chains))
        self.emptied_chains.update(dict.fromkeys(changes.emptied_chains, EmptiedChain(now)))

    def record_deleted(self, names: Iterable[str]) -> None:
        """Note that these chains do not wait any more."""
        for name in names:
            self.emptied_chains.pop(name, None)

    def record_kept(self, names: Iterable[str], now: float) -> None:
        """Note that these could not be deleted, because somebody's rule leads there: they wait longer."""
        for name in names:
            if name in self.emptied_chains:
                self.emptied_chains[name] = self.emptied_chains[name].retry_later(now)

    def _held_by_others(self, members: set[_Member], owners: Iterable[Owner]) -> set[_Member]:
        own = Counter(member for owner in owners if owner in self._contents for member in self._contents[owner].members)
        return {member for member in members if self._members[member] > own[member]}

    def apply(self, wanted: Mapping[Owner, Contents | None]) -> None:
        """Note that a commit has given these owners what they wanted."""
        for owner, contents in wanted.items():
            before = self._contents.get(owner)
            if before is not None:
                self._release(before.members)
            # Replaced, and never missing meanwhile: an audit reads beside.
            if contents is not None:
                self._contents[owner] = contents
                self._members.update(contents.members)
            else:
                self._contents.pop(owner, None)

    def _release(self, members: Iterable[_Member]) -> None:
        for member in members:
            self._members[member] -= 1
            if not self._members[member]:
                del self._members[member]

    def all_contents(self, but: Collection[Owner] = ()) -> Contents:
        """Return the contents of all others, joined, as they are now; also for a thread that does not change them."""
        return Contents.merged(contents for owner, contents in list(self._contents.items()) if owner not in but)
