"""Computes the transaction of a sync, which turns the known table into the desired one. No I/O.

``knft.nft.transaction`` describes the phases in which it is sent.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from knft.config import Config
from knft.delta.diff import ContentsDiff
from knft.memory_errors import exit_if_out_of_memory
from knft.model.names import ServicePortName
from knft.nft.expressions import Goto, Verdict
from knft.nft.objects import Array, ArrayName, Chain, Contents, Entry, Key
from knft.nft.transaction import Transaction
from knft.render import layout, names
from knft.render.fragment import Fragment, PreviousTable, render_node, render_plan
from knft.render.pools import (
    SharedChain,
    affinity_timeout,
    parse_shared_chain,
    shared_chain,
    with_common_sizes,
    with_targets,
)
from knft.render.wide import WideNumbers, wide_port
from knft.sync.earlier_affinity import without_former_ids
from knft.sync.state import ServiceState
from knft.sync.superseded import Removals, defer_unreachable, find_superseded
from knft.sync.table_snapshot import Owner, SpecialOwner, TableSnapshot

MAX_RULES = 1 << 10
"""Once a transaction of a partial sync has this many rules in chains of Service ports, the other sticky Service ports
are postponed. If a transaction has more rules in new chains, these are sent before the main phase. For a rule as text,
libnftables 1.0.6 needs about 9 KB of memory. This many rules are less than a MiB of text, so that the worker process is
not replaced (``knft.kernel.process.RECYCLE_BYTES``)."""

MAX_NEW_RULES = 3 << 10
"""The most rules in one transaction of the new-chains phase."""

MAX_ELEMENTS = 1 << 11
"""The most elements in one transaction of the endpoint phase or the cleanup phase. libnftables 1.0.6 needs nearly 3 KB
for each. With four times as many, an element cost a fifth more CPU time, probably because of the processor's cache. As
JSON they have less than a MiB, so that the worker process is not replaced (``knft.kernel.process.RECYCLE_BYTES``)."""

Fragments = Mapping[Owner, Fragment | None]


class PreparedTransaction(Struct, frozen=True):
    """A transaction, and what it was computed from.

    ``wide`` are the numbers of the affected wide Service ports, None if the Service port is no longer wide.
    ``render_errors`` are Service ports that could not be rendered. ``claimed_count`` is the number of further Service
    ports whose contents a full sync found unchanged and claimed. ``removes_unclaimed`` tells whether it removes
    unclaimed contents. ``emptied_chains`` are the chains that it empties and deletes. ``deletable_chains`` were emptied
    before and can be deleted in a separate transaction after it, which the kernel refuses if a foreign rule refers to
    one of them. ``waits_for_packets`` tells whether the kernel must finish its packets before the cleanup phase.
    ``postponed`` are owners of the snapshot that the transaction does not change, because it has enough rules without
    them.
    """

    desired: Fragments
    diff: ContentsDiff
    transaction: Transaction
    wide: dict[ServicePortName, int | None]
    render_errors: dict[ServicePortName, Exception]
    removes_unclaimed: bool
    emptied_chains: tuple[str, ...]
    deletable_chains: tuple[str, ...]
    waits_for_packets: bool = False
    postponed: frozenset[ServicePortName] = frozenset()
    claimed_count: int = 0

    def contents(self) -> dict[Owner, Contents | None]:
        """Return the contents that each owner will have."""
        return _contents(self.desired)


def prepare_transaction(
    snapshot: TableSnapshot, state: ServiceState, config: Config, now: float, max_rules: float = math.inf
) -> PreparedTransaction:
    """Return the transaction from ``snapshot`` to the contents that ``state`` requires; ``now`` is in seconds.

    As soon as it has ``max_rules`` rules of chains of Service ports, the other sticky Service ports are postponed.
    """
    family = state.node.family
    rendering = _Rendering(snapshot, state, config, now, max_rules)
    desired = rendering.render_all()
    if snapshot.is_full:
        snapshot.claim_unchanged_chains(desired)
    contents = _contents(desired)
    diff = snapshot.programmed.diff(contents)
    superseded = find_superseded(snapshot.programmed, contents)
    removed, superseded_removals = superseded.split(diff)
    removed, unreachable = defer_unreachable(removed, diff.added, MAX_ELEMENTS)
    new_shared, changed_shared = _missing_shared_chains(snapshot, desired, rendering.claims.chains)
    new_chains = (*(shared_chain(spec, family, config) for spec in new_shared), *diff.new_chains)
    are_early = _are_created_early(new_chains, diff)
    emptied = (*diff.emptied_chains, *(_unused_affinity_chains(snapshot, state) if rendering.is_complete else ()))
    transaction = Transaction(
        family.nft,
        names.TABLE,
        new_chains=new_chains if are_early else (),
        chains=(
            *(() if are_early else new_chains),
            *_missing_constant_chains(snapshot, state, config),
            *(shared_chain(spec, family, config) for spec in changed_shared),
            *diff.changed_chains,
            *(Chain(name) for name in emptied),
        ),
        removed=removed,
        added=diff.added,
        deferred_removals=_joined(superseded_removals, unreachable),
        deleted_chains=emptied,
    )
    return PreparedTransaction(
        desired,
        diff,
        transaction,
        rendering.wide_numbers.changed,
        rendering.render_errors,
        rendering.removes_unclaimed,
        emptied,
        _deletable_chains(snapshot, transaction, now),
        superseded.need_wait(superseded_removals),
        frozenset(rendering.postponed),
        len(rendering.claims.names),
    )


def _joined(first: Removals, second: Removals) -> Removals:
    return {name: (*first.get(name, ()), *second.get(name, ())) for name in dict.fromkeys((*first, *second))}


def _contents(desired: Fragments) -> dict[Owner, Contents | None]:
    return {owner: fragment.contents if fragment is not None else None for owner, fragment in desired.items()}


class _Claims:
    """The Service ports whose contents a full sync finds unchanged in the kernel.

    The found contents are recorded as the Service port's immediately, so that the rendered contents of all Service
    ports are neither stored nor compared together.
    """

    def __init__(self, snapshot: TableSnapshot) -> None:
        self._snapshot = snapshot
        self.names: list[ServicePortName] = []
        self.chains: dict[SharedChain, None] = {}
        """The shared chains that they need."""

    def claim(self, owner: Owner, fragment: Fragment | None) -> bool:
        """Claim the contents of a Service port without its own chains; return whether all of them were found."""
        if not self._snapshot.is_full or not isinstance(owner, ServicePortName):
            return False
        if fragment is None or not self._snapshot.programmed.claim(SpecialOwner.UNCLAIMED, owner, fragment.contents):
            return False
        self.names.append(owner)
        self.chains.update(dict.fromkeys(fragment.chains))
        return True

    def frontends(self) -> set[Key]:
        """Return the frontends of the Service ports."""
        found = (self._snapshot.programmed.get(name) for name in self.names)
        return {key for each in found if each is not None for _, key in (*each.entries, *each.members)}


class _Rendering:
    """Renders the owners of a snapshot."""

    def __init__(
        self, snapshot: TableSnapshot, state: ServiceState, config: Config, now: float, max_rules: float
    ) -> None:
        self._max_rules = max_rules
        self.postponed: set[ServicePortName] = set()
        self._snapshot = snapshot
        self._state = state
        self._config = config
        self._previous = PreviousTable(_previous_arrays(snapshot), snapshot.wide, now, snapshot.programmed.get)
        self.wide_numbers = WideNumbers(snapshot.wide)
        self.claims = _Claims(snapshot)
        self.render_errors: dict[ServicePortName, Exception] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all owners were rendered; elements of the others may lead to any chain."""
        return not (self.postponed or self.render_errors)

    @property
    def removes_unclaimed(self) -> bool:
        """Whether unclaimed contents are removed: not if a Service port that may need them could not be rendered."""
        return self._snapshot.removes_unclaimed and not self.render_errors

    def render_all(self) -> dict[Owner, Fragment | None]:
        """Return the desired contents of each owner. Owners are sorted: equal objects give equal transactions."""
        desired = self._render_up_to_limit(sorted(self._snapshot.owners, key=_sort_key))
        if self._snapshot.releases_numbers:
            self.wide_numbers.release_unassigned(self._snapshot.preserved | self.render_errors.keys())
        previously_unclaimed = self._snapshot.programmed.get(SpecialOwner.UNCLAIMED)
        if previously_unclaimed is not None:
            kept = previously_unclaimed
            if self.removes_unclaimed:
                kept = _common(previously_unclaimed, self._preserved())
            merged = _merged(desired)
            unclaimed = kept.without(merged)
            unclaimed.members -= _superseded_ranges(unclaimed, merged, self.claims)
            desired[SpecialOwner.UNCLAIMED] = Fragment(unclaimed) if unclaimed != Contents.empty() else None
        return desired

    def _render_up_to_limit(self, owners: Iterable[Owner]) -> dict[Owner, Fragment | None]:
        """Render the owners in order, without those whose contents are claimed.

        Once the transaction has enough rules, postpone those that need many.
        """
        desired: dict[Owner, Fragment | None] = {}
        rules = 0
        for owner in owners:
            if rules >= self._max_rules and isinstance(owner, ServicePortName) and self._can_wait(owner):
                self.postponed.add(owner)
                continue
            self._render_owner(owner, self.wide_numbers, desired)
            fragment = desired.get(owner)
            if self.claims.claim(owner, fragment):
                del desired[owner]
                continue
            rules += _changed_rule_count(self._snapshot.programmed.chains_of(owner), fragment)
        return desired

    def _can_wait(self, name: ServicePortName) -> bool:
        return self._state.is_sticky(name) and name != self._snapshot.longest_postponed

    def _render_owner(self, owner: Owner, numbers: WideNumbers, desired: dict[Owner, Fragment | None]) -> None:
        """Add an owner's fragment to ``desired``, None if it needs nothing; record the error if rendering fails."""
        if isinstance(owner, ServicePortName):
            try:
                desired[owner] = _render_service_port(self._state, owner, self._previous, numbers, self._config)
            except Exception as error:  # noqa: BLE001 - a bug that affects one Service port must not stop the others
                exit_if_out_of_memory(error)
                self.render_errors[owner] = error
        else:
            desired[owner] = render_node(self._state.node, self._config) if owner is SpecialOwner.NODE else None

    def _preserved(self) -> Contents:
        """Return the contents of the Service ports that a full sync leaves as they are."""
        numbers, failed = WideNumbers(self._snapshot.wide), dict(self.render_errors)
        desired: dict[Owner, Fragment | None] = {}
        for owner in sorted(self._snapshot.preserved, key=_sort_key):
            self._render_owner(owner, numbers, desired)
        self.render_errors = failed  # Errors of Service ports that this sync does not commit do not count.
        return Contents.merged((_merged(desired), self._snapshot.last_known))


def _changed_rule_count(before: Collection[Chain], after: Fragment | None) -> int:
    """Return the number of rules in the chains of its own that a Service port changes."""
    if after is None or not after.contents.chains:
        return 0
    found = {chain.name: chain for chain in before}
    return sum(len(chain.rules) for name, chain in after.contents.chains.items() if found.get(name) != chain)


def _merged(desired: Fragments) -> Contents:
    return Contents.merged(fragment.contents for fragment in desired.values() if fragment is not None)


def _common(contents: Contents, other: Contents) -> Contents:
    """Return the part of ``contents`` whose names and keys ``other`` has too."""
    return contents.without(contents.without(other))


def _previous_arrays(snapshot: TableSnapshot) -> Mapping[ArrayName, Array]:
    """Return the arrays before the sync; in a full sync those found in the kernel, without claimed ones."""
    unclaimed = snapshot.programmed.get(SpecialOwner.UNCLAIMED)
    if snapshot.is_full and unclaimed is not None:
        return without_former_ids(unclaimed)
    recorded = snapshot.programmed.merged_contents(snapshot.owners).arrays
    if unclaimed is None and not snapshot.found_arrays:
        return recorded
    # The objects of a Service port may have become known after its contents were found.
    return {**snapshot.found_arrays, **(without_former_ids(unclaimed) if unclaimed is not None else {}), **recorded}


def _superseded_ranges(found: Contents, desired: Contents, claims: _Claims) -> set[tuple[str, Key]]:
    """Return the found source ranges of desired frontends: the new ranges may overlap them."""
    ranges = {member for member in found.members if member[0] == names.SOURCE_RANGES}
    if not ranges:
        return ranges
    frontends = {key for _, key in (*desired.entries, *desired.members)} | claims.frontends()
    return {member for member in ranges if member[1][:3] in frontends}


def _sort_key(owner: Owner) -> tuple[str, ...]:
    match owner:
        case SpecialOwner():
            return (owner.value,)
        case _:
            return tuple(owner)  # str(owner) lacks the protocol.


def _render_service_port(
    state: ServiceState, name: ServicePortName, previous: PreviousTable, numbers: WideNumbers, config: Config
) -> Fragment | None:
    plan = state.plan(name)
    if plan is None:
        numbers.release(name)
        return None
    return render_plan(plan, previous, wide_port(plan, numbers), state.node.family, config)


def _unused_affinity_chains(snapshot: TableSnapshot, state: ServiceState) -> tuple[str, ...]:
    """Return the chains that remember clients for a time that no Service port has, if they are to be removed now."""
    if not snapshot.removes_unused_chains:
        return ()
    used = {0} | state.affinity_timeouts()
    parsed = ((name, parse_shared_chain(name)) for name in snapshot.programmed.chains)
    return tuple(sorted(name for name, chain in parsed if chain is not None and affinity_timeout(chain) not in used))


def _missing_constant_chains(snapshot: TableSnapshot, state: ServiceState, config: Config) -> tuple[Chain, ...]:
    if not snapshot.is_full:
        return ()
    chains = layout.constant_chains_with_markers(state.node.family, config)
    return tuple(chain for chain in chains if chain.name not in snapshot.programmed.chains)


def _missing_shared_chains(
    snapshot: TableSnapshot, desired: Fragments, claimed: Iterable[SharedChain]
) -> tuple[list[SharedChain], list[SharedChain]]:
    """Return the shared chains to create, and those that exist with other rules.

    Elements lead to the latter, so their rules must change together with the elements: another version of knft may have
    written rules that use other maps.
    """
    programmed = snapshot.programmed.chains
    fragments = (fragment.chains for fragment in desired.values() if fragment is not None)
    specs = itertools.chain.from_iterable(
        (*fragments, claimed, (part for spec in snapshot.stale_shared_chains for part in with_targets(spec)))
    )
    needed = {spec.name: spec for spec in specs if spec.name not in programmed}
    missing = with_common_sizes(needed.values(), programmed) if needed else []
    existing = snapshot.listing.rule_counts if snapshot.listing is not None else {}
    return [spec for spec in missing if spec.name not in existing], [spec for spec in missing if spec.name in existing]


def _are_created_early(new_chains: Collection[Chain], diff: ContentsDiff) -> bool:
    """Tell whether the new chains are created before the main phase.

    They are in a large transaction: they can then be split, and exist before the endpoints, because for each new rule
    with a map the kernel walks the map. They also are if a replaced verdict goes to one of them: a packet that goes to
    an empty chain gets no endpoint, although its frontend has endpoints before and after the change. If the frontend
    had no verdict, such a packet is handled as before the change. And they are if they check source ranges: an empty
    chain would let all clients through.
    """
    rules, elements = sum(len(chain.rules) for chain in new_chains), sum(map(len, diff.added.values()))
    if rules > MAX_RULES or elements > MAX_ELEMENTS:
        return True
    created = {chain.name for chain in new_chains}
    return any(verdict.chain in created for verdict in _verdicts_with_rules_first(diff) if isinstance(verdict, Goto))


def _verdicts_with_rules_first(diff: ContentsDiff) -> Iterator[Verdict]:
    """Yield the new verdicts that must not lead to a chain without rules: replaced ones, and those to source ranges."""
    for value in diff.added.get(names.SOURCE_RANGE_CHAINS, {}).values():
        if isinstance(value, Entry):
            yield value.verdict
    for container, keys in diff.removed.items():
        added = diff.added.get(container, {})
        for value in (added.get(key) for key in keys):
            if isinstance(value, Entry):
                yield value.verdict


def _deletable_chains(snapshot: TableSnapshot, transaction: Transaction, now: float) -> tuple[str, ...]:
    """Return the chains that were emptied long enough ago."""
    written = {chain.name for chain in (*transaction.new_chains, *transaction.chains)}
    emptied = snapshot.programmed.emptied_chains.items()
    return tuple(name for name, chain in emptied if chain.deletable_at < now and name not in written)
