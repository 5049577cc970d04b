"""Finds the elements to remove in the cleanup phase, after the new verdicts are in force.

Before some of them are removed, the sync waits until the kernel has finished its packets.

The kernel evaluates a packet by the rules that existed when the packet entered the hook, but by the elements that exist
at the time of each lookup. So if a Service port changes to other chains, or its frontends to other maps with the
traffic policy or consistent hashing, a packet that read the old verdict before the commit looks up the former endpoints
after it.

A packet of a known client (``knft.render.affinity``) is looked up by one index after the other. If a Service port loses
an endpoint, another one may move from the end of its array to that index. So the element at its old index stays until
the cleanup phase: a packet that was looked up by the new index before the commit finds it there.

A packet that was not translated because its frontend had no endpoint is rejected or dropped at a later hook. So if the
frontend gets an endpoint, the element that rejects or drops is removed in the cleanup phase.

Once the new verdicts are in force, no packet looks up a removed endpoint of any Service port, except endpoint 0, which
the second rule of a pool chain uses, and endpoints whose IDs the rules for known clients look up: those have blocks of
indexes (``knft.render.affinity``). So if there are many, they are removed in the cleanup phase too, which has pieces
of limited size, except these IDs; without its ID a removed endpoint is not used. See docs/design/transaction-phases.md.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from knft.delta.diff import ContentsDiff
from knft.delta.programmed import ProgrammedContents
from knft.nft.expressions import Drop, Verdict
from knft.nft.objects import ArrayName, Contents, Key
from knft.render import layout
from knft.render.affinity import covered_end
from knft.render.names import (
    CLUSTER_IPS,
    DROPPED_NODEPORTS,
    DROPPED_SERVICES,
    HAIRPIN,
    HASHED_MAP_PREFIX,
    NO_ENDPOINT_NODEPORTS,
    NO_ENDPOINT_SERVICES,
    RESET_PREFIX,
    SERVICE_IPS,
    SERVICE_NODEPORTS,
    SOURCE_RANGES,
    endpoint_ids_map,
    is_ids_map,
)
from knft.sync.table_snapshot import Owner, SpecialOwner

Removals = Mapping[str, tuple[Key, ...]]


_DROPPING = ("drop", DROPPED_SERVICES, DROPPED_NODEPORTS)
_SERVING_MAPS = {NO_ENDPOINT_SERVICES: SERVICE_IPS, NO_ENDPOINT_NODEPORTS: SERVICE_NODEPORTS}


class Superseded(Struct, frozen=True):
    """Endpoints and source ranges of Service ports that are served by other chains or maps from now on.

    ``moved`` are the elements at the old indexes of endpoints with session affinity that get another index.
    ``rejections`` are elements that rejected or dropped packets to frontends that have an endpoint from now on.
    """

    arrays: frozenset[ArrayName] = frozenset()
    source_ranges: frozenset[Key] = frozenset()
    rejections: frozenset[tuple[str, Key]] = frozenset()
    moved: frozenset[tuple[str, Key]] = frozenset()

    def need_wait(self, deferred: Removals) -> bool:
        """Return whether the kernel must finish its packets before these elements are removed.

        It must for endpoints and source ranges: every packet with an old verdict looks them up. The other elements
        concern few packets: those from a removed endpoint to itself, those to a frontend that gets its first endpoint,
        and those of a known client whose endpoint gets another index.
        """
        return bool(self.arrays or self.source_ranges) and any(
            (container == SOURCE_RANGES and key in self.source_ranges) or ArrayName(container, key[:-1]) in self.arrays
            for container, keys in deferred.items()
            for key in keys
        )

    def includes(self, container: str, key: Key) -> bool:
        """Return whether an element is removed in the cleanup phase."""
        return (
            # A packet that got its endpoint before the commit is looked up in this set after it.
            container == HAIRPIN
            or (container == SOURCE_RANGES and key in self.source_ranges)
            or ArrayName(container, key[:-1]) in self.arrays
            or (container, key) in self.rejections
            or (container, key) in self.moved
        )

    def split(self, diff: ContentsDiff) -> tuple[Removals, Removals]:
        """Return the elements to remove in the main phase, and those to remove in the cleanup phase.

        An element whose value changes is replaced in the main phase.
        """
        main: dict[str, tuple[Key, ...]] = {}
        deferred: dict[str, tuple[Key, ...]] = {}
        for container, keys in diff.removed.items():
            added = diff.added.get(container, {})
            waiting = [key for key in keys if key not in added and self.includes(container, key)]
            at_once = (
                keys if not waiting else tuple(key for key in keys if key in added or not self.includes(container, key))
            )
            main |= {container: at_once} if at_once else {}
            deferred |= {container: tuple(waiting)} if waiting else {}
        return main, deferred


def defer_unreachable(removed: Removals, added: Mapping[str, Collection[Key]], size: int) -> tuple[Removals, Removals]:
    """Return the elements to remove in the main phase, and the endpoints among them to remove in the cleanup phase.

    All are removed in the main phase if at most ``size`` endpoints could wait.
    """
    unreachable: dict[str, tuple[Key, ...]] = {}
    for container in (name for name in removed if name in layout.endpoint_map_names()):
        replaced = added.get(container, ())
        gone = [key for key in removed[container] if key not in replaced]
        waiting = _beyond_known_rules(gone) if is_ids_map(container) else gone
        unreachable[container] = tuple(key for key in waiting if key[-1] != 0)
    if sum(map(len, unreachable.values())) <= size:
        return removed, {}
    main = dict(removed)
    for container, keys in unreachable.items():
        deferred = set(keys)
        main[container] = tuple(key for key in removed[container] if key not in deferred)
    return _without_empty(main), _without_empty(unreachable)


def _beyond_known_rules(removed: Iterable[Key]) -> list[Key]:
    """Return the keys of endpoint IDs that no rule for known clients looks up in what is left of the arrays."""
    sizes: dict[Key, int] = {}
    indexes = [(key, key[:-1], int(key[-1])) for key in removed]
    for _, prefix, index in indexes:
        sizes[prefix] = min(index, sizes.get(prefix, index))
    ends = {prefix: covered_end(size) for prefix, size in sizes.items()}
    return [key for key, prefix, index in indexes if index >= ends[prefix]]


def _without_empty(removals: Removals) -> Removals:
    return {container: keys for container, keys in removals.items() if keys}


def find_superseded(programmed: ProgrammedContents[Owner], desired: Mapping[Owner, Contents | None]) -> Superseded:
    """Return what the Service ports that change their chains or maps no longer use.

    Unclaimed contents, found at start or after a failure, may belong to a Service port that still exists.
    """
    arrays: set[ArrayName] = set()
    source_ranges: set[Key] = set()
    rejections: set[tuple[str, Key]] = set()
    moved: set[tuple[str, Key]] = set()
    unclaimed = programmed.get(SpecialOwner.UNCLAIMED)
    for owner, new in desired.items():
        old = programmed.get(owner)
        if owner is SpecialOwner.UNCLAIMED:  # Without ranges: new ones may overlap them, so these are removed first.
            arrays |= old.arrays.keys() if old is not None else frozenset()
            continue
        before = unclaimed if old is None else old
        if new is None or before is None:
            continue
        moved.update(_old_indexes(before, new))
        if old is None:
            continue
        rejections.update(_obsolete_rejections(old, new))
        arrays.update(_unused_arrays(old, new))
        if _is_served_by_other_chains(old, new):
            source_ranges |= {key for container, key in old.members if container == SOURCE_RANGES}
    for new in desired.values() if arrays else ():
        if new is not None:
            arrays.difference_update(new.arrays)
    return Superseded(frozenset(arrays), frozenset(source_ranges), frozenset(rejections), frozenset(moved))


def _old_indexes(old: Contents, new: Contents) -> Iterator[tuple[str, Key]]:
    """Yield the elements of endpoints with session affinity that move from the end of an array to another index."""
    for name in new.arrays:
        ids = ArrayName(endpoint_ids_map(name.container), name.prefix)
        before, after = old.arrays.get(ids, ()), new.arrays.get(ids, ())
        if is_ids_map(name.container) or not 0 < len(after) < len(before):
            continue
        remaining = set(after)
        for index in range(len(after), len(before)):
            if before[index] in remaining:
                yield name.container, (*name.prefix, index)
                yield ids.container, (*ids.prefix, index)


def _obsolete_rejections(old: Contents, new: Contents) -> Iterator[tuple[str, Key]]:
    """Yield the removed elements that reject or drop packets to frontends that have an endpoint now.

    Except elements that reject packets to a cluster IP: without them, chain ``cluster-ips-check`` rejects the packets.
    """
    for (container, key), entry in old.entries.items():
        if (container, key) in new.entries or (_SERVING_MAPS.get(container, ""), key) not in new.entries:
            continue
        if _drops(entry.verdict) or (CLUSTER_IPS, key[:1]) not in new.members:
            yield container, key


def _drops(verdict: Verdict) -> bool:
    return isinstance(verdict, Drop) or verdict.chain.removeprefix(RESET_PREFIX) in _DROPPING


def _is_served_by_other_chains(old: Contents, new: Contents) -> bool:
    """Tell whether a Service port still serves its clients, and uses other chains of its own."""
    return old.chains.keys() != new.chains.keys() and bool(_served(new))


def _served(contents: Contents) -> set[Key]:
    """Return the frontends with a verdict, as at the beginning of keys in endpoint maps."""
    return {(*key[:-2], key[-1]) for container, key in contents.entries if container in _SERVING_MAPS.values()}


def _unused_arrays(old: Contents, new: Contents) -> Iterator[ArrayName]:
    """Yield the arrays that a Service port no longer has, although the frontends that used them are served.

    Without endpoint IDs a packet is sent to a random endpoint, so these alone do not wait.
    """
    removed = old.arrays.keys() - new.arrays.keys()
    if _is_served_by_other_chains(old, new):
        yield from removed
        return
    endpoints = [name for name in removed if not is_ids_map(name.container)]
    served = _served(new) if endpoints else set()
    for name in endpoints:
        # A table of hashes has the number of the Service port instead of a frontend.
        if name.prefix in served or (served and name.container.startswith(HASHED_MAP_PREFIX)):
            yield from removed & {name, ArrayName(endpoint_ids_map(name.container), name.prefix)}
