"""TableSnapshot: the contents of the table before a transaction, known from the last commit or from a listing.

Each part of the contents has an owner: the Service port for which it was rendered, or a SpecialOwner. Two other
modules use the word differently: in knft.decide.frontends a Service owns a contested frontend, and in
knft.kernel.ownership a process owns a table.
"""

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field, structs

from knft.config import Config
from knft.delta.programmed import EmptiedChain, ProgrammedContents
from knft.families import Family
from knft.model.names import ServicePortName
from knft.nft.codec.listed_table import is_declared_as
from knft.nft.codec.listing import TableListing
from knft.nft.codec.rule_digests import expected_digest
from knft.nft.objects import Array, ArrayName, Chain, Container, Contents
from knft.render import layout
from knft.render.fragment import Fragment
from knft.render.names import NODE_SETS, OWNED_CHAIN_PREFIXES
from knft.render.pools import SharedChain, configured_shared_chain, shared_chain
from knft.render.wide import read_numbers
from knft.sync.earlier_affinity import without_former_ids


class SpecialOwner(enum.Enum):
    """Owners of contents that are not Service ports."""

    NODE = "node"
    UNCLAIMED = "unclaimed"
    """Contents that were found in the kernel and that no Service port has claimed, also called orphans.

    A sync removes them, except those of preserved Service ports; if the kernel refuses that, knft retries."""


Owner = ServicePortName | SpecialOwner


class TableState(enum.Enum):
    """What must be done to the table before elements can be changed."""

    READY = "ready"
    MISSING = "missing"
    INCOMPATIBLE = "incompatible"
    """A container or base chain has another type or hook than it must have, or a foreign change affects the table as a
    whole: it is replaced."""


class SyncScope(enum.Enum):
    """What a transaction writes and removes in addition to the contents of its owners."""

    FULL = "full"
    """It writes missing constant chains, releases unused numbers of wide Service ports, and removes unclaimed
    contents."""
    KEEP_UNCLAIMED = "keep unclaimed"
    """It writes missing constant chains, which all Service ports need, and releases unused numbers; unclaimed contents
    stay."""
    PARTIAL = "partial"
    """Nothing in addition."""
    UNCLAIMED_ONLY = "unclaimed only"
    """It removes unclaimed contents, and nothing else in addition."""


class TableSnapshot(Struct, frozen=True):
    """The known state of the table, and what a sync may change in it."""

    programmed: ProgrammedContents[Owner]
    """The contents by owner, as the last commit left them or as they were read back."""
    table: TableState
    owners: frozenset[Owner]
    """The owners whose contents the sync may change."""
    wide: dict[ServicePortName, int] = {}
    """The numbers of the wide Service ports, as this process assigned them or as they were read back."""
    scope: SyncScope = SyncScope.FULL
    removes_unused_chains: bool = False
    """Whether the sync removes shared chains for affinity timeouts that no Service port has."""
    longest_postponed: ServicePortName | None = None
    """The Service port that was postponed first; the sync does not postpone it again."""
    holds_removals: bool = False
    """Whether contents that no Service port claims stay as they were found: not all objects are known yet."""
    preserved: frozenset[ServicePortName] = frozenset()
    """Service ports whose contents the sync does not remove, because they are quarantined."""
    last_known: Contents = field(default_factory=Contents.empty)
    """The last contents of the preserved Service ports that the kernel accepted, and contents that may belong to
    unknown objects; they are not removed either."""
    rule_digests: dict[str, str] = {}
    """The digest of each chain's rules, if the table was read back."""
    stale_shared_chains: tuple[SharedChain, ...] = ()
    """Shared chains that were read back and whose rules are not as expected."""
    listing: TableListing | None = None
    """The table as it was read back; None if it was not read."""
    found_arrays: Mapping[ArrayName, Array] = {}
    """Arrays that were found in the kernel and that ``programmed`` may lack: endpoints keep their order and IDs."""

    @property
    def is_full(self) -> bool:
        """Whether the table was read back, so that the constant chains are compared too."""
        return self.scope in (SyncScope.FULL, SyncScope.KEEP_UNCLAIMED)

    @property
    def removes_unclaimed(self) -> bool:
        """Whether unclaimed contents are removed."""
        return self.scope in (SyncScope.FULL, SyncScope.UNCLAIMED_ONLY) and not self.holds_removals

    @property
    def releases_numbers(self) -> bool:
        """Whether the numbers of Service ports that are not wide any more are released."""
        return self.is_full and not self.holds_removals

    @property
    def unclaimed(self) -> Contents | None:
        """What was found in the kernel and no Service port has claimed, None if there is nothing."""
        if self.table is TableState.INCOMPATIBLE:
            return self.listing.contents if self.listing is not None else None
        return self.programmed.get(SpecialOwner.UNCLAIMED)

    def with_removals_held(self, *, keeps_node: bool, keeps_all: bool) -> "TableSnapshot":
        """Return the snapshot for a full sync with incomplete objects.

        With ``keeps_all`` the sync removes nothing that was found; with ``keeps_node``, the node's contents do not
        change.
        """
        kept: set[Owner] = {SpecialOwner.NODE} if keeps_node and self._has_node_contents() else set()
        return structs.replace(self, owners=self.owners - kept, holds_removals=keeps_all)

    def _has_node_contents(self) -> bool:
        node = self.programmed.get(SpecialOwner.NODE)
        return node is not None and bool(node.members)

    def for_replacement(self) -> "TableSnapshot":
        """Return the snapshot for a sync that replaces the whole table; affinity entries are kept."""
        return TableSnapshot(
            ProgrammedContents(),
            TableState.INCOMPATIBLE,
            self.owners,
            self.wide,
            listing=self.listing,
            found_arrays=self.found_arrays or without_former_ids(self.programmed.all_contents()),
        )

    def claim_unchanged_chains(self, desired: Mapping[Owner, Fragment | None]) -> None:
        """Treat the chains of a Service port as up to date if their rules are as desired.

        So a restart on an unchanged cluster sends nothing.
        """
        if self.programmed.get(SpecialOwner.UNCLAIMED) is None:
            return
        for fragment in desired.values():
            if fragment is not None:
                chains = fragment.contents.chains
                found = {name: chain for name, chain in chains.items() if self._is_found(chain)}
                self.programmed.add_chains(SpecialOwner.UNCLAIMED, found)

    def _is_found(self, chain: Chain) -> bool:
        return self.rule_digests.get(chain.name) == expected_digest(chain.rules)


def snapshot_from_listing(
    listing: TableListing | None, family: Family, config: Config, service_ports: Iterable[ServicePortName], now: float
) -> TableSnapshot:
    """Return the snapshot for a full sync of all Service ports; ``now`` is in seconds."""
    constant_chains, names = layout.constant_chains_with_markers(family, config), tuple(service_ports)
    owners: frozenset[Owner] = frozenset({SpecialOwner.NODE, SpecialOwner.UNCLAIMED, *names})
    programmed: ProgrammedContents[Owner] = ProgrammedContents()
    if listing is None:
        return TableSnapshot(programmed, TableState.MISSING, owners)
    if _must_be_replaced(listing, layout.containers(family, config, hashing=True), constant_chains):
        arrays = without_former_ids(listing.contents)
        return TableSnapshot(programmed, TableState.INCOMPATIBLE, owners, listing=listing, found_arrays=arrays)
    discard_foreign_contents(listing.contents, family, config)
    owned = [name for name in listing.rule_counts if name.startswith(OWNED_CHAIN_PREFIXES)]
    listing.contents.chains.update((name, Chain(name)) for name in owned if listing.rule_counts[name])
    # A previous knft process emptied these chains and did not delete them yet.
    programmed.emptied_chains.update((name, EmptiedChain(now)) for name in owned if not listing.rule_counts[name])
    # No element leads to the marker chains of other versions, so they need not wait.
    constant_names = {chain.name for chain in constant_chains}
    outdated = (name for name in listing.rule_counts if layout.is_marker(name) and name not in constant_names)
    programmed.emptied_chains.update(
        (name, EmptiedChain(-math.inf)) for name in outdated if not listing.rule_counts[name]
    )
    programmed.chains.update(up_to_date_chains(listing, family, config))
    programmed.containers.update(listing.containers)
    programmed.apply(_by_owner(listing.contents))
    found = sorted(listing.rule_counts.keys() - programmed.chains)
    shared = (configured_shared_chain(name, config) for name in found)
    return TableSnapshot(
        programmed,
        TableState.READY,
        owners,
        read_numbers(listing.contents, names),
        rule_digests=listing.rule_digests,
        stale_shared_chains=tuple(spec for spec in shared if spec is not None),
        listing=listing,
    )


def _by_owner(found: Contents) -> dict[Owner, Contents | None]:
    """Return the found contents by owner: those of the node belong to NODE, all others to UNCLAIMED.

    Unclaimed contents may be removed later than new ones are added. The node's ranges must be removed in the same
    transaction, because an old range would conflict with a new range that overlaps it.
    """
    node = {member for member in found.members if member[0] in NODE_SETS}
    return {
        SpecialOwner.NODE: structs.replace(Contents.empty(), members=node),
        SpecialOwner.UNCLAIMED: structs.replace(found, members=found.members - node),
    }


def _must_be_replaced(listing: TableListing, containers: Sequence[Container], constant_chains: Iterable[Chain]) -> bool:
    """Tell whether elements, rules and missing sets and maps are not all that differs from the table that is needed.

    A table of another version of knft can be adopted if its sets, maps and base chains differ from the needed ones only
    in that some are missing, or that there are others: those are foreign objects.
    """
    if listing.must_be_replaced:
        return True
    listed = {each.name: declared for each, declared in listing.declarations.items()}
    return (
        any(each.name in listed and not is_declared_as(listed[each.name], each) for each in containers)
        or any(each.name in listing.unreadable for each in containers)
        or any(
            chain.name in listing.rule_counts and chain.hook != listing.hooks.get(chain.name)
            for chain in constant_chains
        )
    )


def discard_foreign_contents(contents: Contents, family: Family, config: Config) -> None:
    """Remove the elements of sets and maps that knft does not declare from a listing's contents."""
    declared = layout.container_names(family, config)
    for position in [place for place in contents.entries if place[0] not in declared]:
        del contents.entries[position]
    for name in [name for name in contents.arrays if name.container not in declared]:
        del contents.arrays[name]
    contents.members.difference_update([member for member in contents.members if member[0] not in declared])


def up_to_date_chains(listing: TableListing, family: Family, config: Config) -> Iterator[str]:
    """Yield the constant and shared chains whose rules are as expected; foreign changes affect the others."""
    constant_chains = {chain.name: chain for chain in layout.constant_chains_with_markers(family, config)}
    for name, rules in listing.rule_digests.items():
        chain, spec = constant_chains.get(name), configured_shared_chain(name, config)
        if chain is None and spec is not None:
            chain = shared_chain(spec, family, config)
        if chain is not None and expected_digest(chain.rules) == rules:
            yield name
