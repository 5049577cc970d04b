"""Basis: what a transaction stands on, which is what the last commit left, or what the kernel was found to hold."""

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field, structs

from knft.config import Config
from knft.delta.programmed import Programmed, Unwanted
from knft.families import Family
from knft.model.names import ServicePortName
from knft.nft.codec.listing import TableListing
from knft.nft.codec.rule_digests import expected_digest
from knft.nft.objects import Chain, Contents, Key, Value
from knft.render import layout
from knft.render.fragment import Fragment
from knft.render.names import NODE_SETS, STICKY_PORTS, STICKY_PREFIX
from knft.render.numbering import StickyPort
from knft.render.pools import SharedChain, parse_shared_chain, shared_chain
from knft.render.sticky import carried_over, read_sticky_ports
from knft.sync.doubts import Doubt


class Part(enum.Enum):
    """Owners of contents that are not Service ports."""

    NODE = "node"
    FOUND = "found"
    """What the kernel held when it was read back; nobody wants it, unless a Service port does."""


class Note(Struct, frozen=True):
    """The owner of a sticky port's note, which outlives the Service port."""

    identity: str


Owner = ServicePortName | Part | Note


class TableState(enum.Enum):
    """What has to be done to the table before elements can be."""

    READY = "ready"
    MISSING = "missing"
    OTHER_LAYOUT = "other layout"
    """A knft with other containers or hooks made it, or somebody else put in what knft never does: it is replaced."""


class Scope(enum.Enum):
    """What a transaction looks after, beside what its owners want."""

    EVERYTHING = "everything"
    """The skeleton, sticky ports that are gone, and what nobody wants, which is removed."""
    FOUNDATION = "foundation"
    """As everything, but what nobody wants stays."""
    CHANGE = "change"
    """Nothing else."""
    SWEEP = "sweep"
    """What nobody wants is removed."""


class Basis(Struct, frozen=True):
    """What is known of the table.

    ``owners`` may have to change; ``sticky`` are the sticky ports by identity. What ``spared`` Service ports want, and
    what they ``had``, is not removed. Where it is to be ``tidy``, what sticky ports have left behind is looked through.

    Of a table that was read back, ``found_rules`` are the digests of each chain's rules, ``rewritten`` shared chains
    whose rules are not what they should be, and ``outdated`` chains mark rules of an older knft and go away.
    """

    programmed: Programmed[Owner]
    table: TableState
    owners: frozenset[Owner]
    sticky: dict[str, StickyPort]
    scope: Scope = Scope.EVERYTHING
    tidy: bool = False
    spared: frozenset[ServicePortName] = frozenset()
    had: Contents = field(default_factory=Contents.empty)
    found_rules: dict[str, str] = {}
    rewritten: tuple[SharedChain, ...] = ()
    outdated: tuple[str, ...] = ()
    listing: TableListing | None = None

    @property
    def full(self) -> bool:
        """Whether the table was read back for it, and the skeleton is looked after."""
        return self.scope in (Scope.EVERYTHING, Scope.FOUNDATION)

    @property
    def sweeps(self) -> bool:
        """Whether what nobody wants is removed."""
        return self.scope in (Scope.EVERYTHING, Scope.SWEEP)

    def memories(self) -> dict[str, dict[Key, Value]]:
        """Return the clients that the table knows, by the set that is to remember them."""
        return carried_over(self.listing.dynamic_elements()) if self.listing is not None else {}

    def replacing(self) -> "Basis":
        """Return the basis of a sync that replaces the table as a whole; its clients stay."""
        return Basis(Programmed(), TableState.OTHER_LAYOUT, self.owners, self.sticky, listing=self.listing)

    def distrusting(self, doubt: Doubt) -> "Basis":
        """Return the basis with doubtful chains to be written anew, however many rules they have."""
        chains = self.listing.chains.keys() if doubt.every_chain and self.listing is not None else doubt.chains
        self.programmed.chains.difference_update(chains)
        shared = [spec for spec in map(parse_shared_chain, sorted(chains)) if spec is not None]
        rules = {name: digest for name, digest in self.found_rules.items() if name not in chains}
        return structs.replace(self, found_rules=rules, rewritten=tuple(dict.fromkeys((*self.rewritten, *shared))))

    def trust_unchanged(self, wanted: Mapping[Owner, Fragment | None]) -> None:
        """Take the chains of a sticky port for what they should be where the kernel's note about it says so.

        The note holds a digest of the chains: so a restart on an unchanged cluster sends nothing. But their rules have
        to be listed as they should be, too.
        """
        found = self.programmed.stored(Part.FOUND)
        for fragment in wanted.values():
            if found is None or fragment is None or fragment.sticky is None:
                continue
            note = wanted.get(Note(fragment.sticky.identity))
            place = (STICKY_PORTS, (fragment.sticky.number,))
            if note is not None and found.entries.get(place) == note.contents.entries[place]:
                chains = fragment.contents.chains
                found.chains.update((name, chain) for name, chain in chains.items() if self._is_found(chain))

    def _is_found(self, chain: Chain) -> bool:
        return self.found_rules.get(chain.name) == expected_digest(chain.rules)


def basis_from_listing(
    listing: TableListing | None, family: Family, config: Config, service_ports: Iterable[ServicePortName], now: float
) -> Basis:
    """Return the basis of a full sync of all Service ports; ``now`` is in seconds."""
    layout_marker, rules_marker = layout.markers(family, config)
    owners: frozenset[Owner] = frozenset({Part.NODE, Part.FOUND, *service_ports})
    programmed: Programmed[Owner] = Programmed()
    if listing is None:
        return Basis(programmed, TableState.MISSING, owners, {})
    declared = {container.name for container in layout.containers(family)}
    if layout_marker not in listing.chains or _is_broken(listing, declared, layout.skeleton(family, config)):
        sticky = read_sticky_ports(listing.contents, now)
        return Basis(programmed, TableState.OTHER_LAYOUT, owners, sticky, listing=listing)
    leave_alone_what_is_not_ours(listing.contents, family)
    owned = [name for name in listing.chains if name.startswith(STICKY_PREFIX)]
    listing.contents.chains.update((name, Chain(name)) for name in owned if listing.chains[name])
    # Emptied by a former process, which was to delete them a while after that; it may have been just now.
    programmed.unwanted.update((name, Unwanted(now)) for name in owned if not listing.chains[name])
    if rules_marker in listing.chains:
        programmed.chains.update(as_expected(listing, family, config))
    programmed.containers.update(listing.containers)
    programmed.adopt(_by_part(listing.contents))
    shared = (parse_shared_chain(name) for name in sorted(listing.chains.keys() - programmed.chains))
    outdated = (name for name in listing.chains if name.startswith(layout.RULES_MARKER) and name != rules_marker)
    return Basis(
        programmed,
        TableState.READY,
        owners,
        read_sticky_ports(listing.contents, now),
        found_rules=listing.rules,
        rewritten=tuple(spec for spec in shared if spec is not None),
        outdated=tuple(sorted(outdated)),
        listing=listing,
    )


def _by_part(found: Contents) -> dict[Owner, Contents | None]:
    """Return what was found as the node's, which a new one replaces at once, and as what somebody else may want.

    A range that is not removed in the same transaction would stand in the way of another that overlaps it.
    """
    node = {member for member in found.members if member[0] in NODE_SETS}
    return {
        Part.NODE: structs.replace(Contents.empty(), members=node),
        Part.FOUND: structs.replace(found, members=found.members - node),
    }


def _is_broken(listing: TableListing, declared: Collection[str], skeleton: Iterable[Chain]) -> bool:
    """Tell whether somebody has changed in a table what a transaction cannot mend."""
    if (
        listing.must_be_replaced
        or not listing.containers.issuperset(declared)
        or not listing.unreadable.isdisjoint(declared)
    ):
        return True
    return any(chain.name in listing.chains and chain.hook != listing.hooks.get(chain.name) for chain in skeleton)


def leave_alone_what_is_not_ours(contents: Contents, family: Family) -> None:
    """Take out of a listing's contents what is in sets and maps that knft has not declared."""
    declared = {container.name for container in layout.containers(family)}
    for place in [place for place in contents.entries if place[0] not in declared]:
        del contents.entries[place]
    for name in [name for name in contents.arrays if name.container not in declared]:
        del contents.arrays[name]
    contents.members.difference_update([member for member in contents.members if member[0] not in declared])


def as_expected(listing: TableListing, family: Family, config: Config) -> Iterator[str]:
    """Yield the chains that have the rules that they should: others have been changed by somebody."""
    skeleton = {chain.name: chain for chain in layout.skeleton(family, config)}
    for name, rules in listing.rules.items():
        chain, spec = skeleton.get(name), parse_shared_chain(name)
        if chain is None and spec is not None:
            chain = shared_chain(spec, family, config)
        if chain is not None and expected_digest(chain.rules) == rules:
            yield name
