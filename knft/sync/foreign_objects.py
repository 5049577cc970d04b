"""Foreign objects: whole chains, sets, maps, flowtables and stateful objects that other programs put into knft's table.

Foreign rules and elements are a different matter: they are in chains, sets and maps of knft, and a sync repairs these.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from knft.config import Config
from knft.families import Family
from knft.nft.codec.deletions import TEXT_KINDS
from knft.nft.codec.listing import TableListing
from knft.nft.objects import NamedObject
from knft.protocols import NFT_PROTOCOLS
from knft.render import layout
from knft.render.counters import counter_chains
from knft.render.localhost_nodeports import reject_chain_name
from knft.render.names import COUNTER_SETS, LOCALHOST_REJECTS, OWNED_CHAIN_PREFIXES, RESET_PREFIX
from knft.render.pools import configured_shared_chain

MAX_NAMED_OBJECTS = 5
"""Most names of objects in one line of the log."""

_CHAIN = "chain"


class ForeignObjects(Struct, frozen=True):
    """The foreign objects of one table: base chains, which can affect any packet, and all others, which cannot."""

    base_chains: frozenset[NamedObject] = frozenset()
    unhooked_objects: frozenset[NamedObject] = frozenset()

    @property
    def all(self) -> frozenset[NamedObject]:
        """All of them."""
        return self.base_chains | self.unhooked_objects

    def deletion_steps(self) -> Iterator[tuple[tuple[NamedObject, ...], tuple[str, ...]]]:
        """Yield the steps that delete the objects other than base chains: what to delete, and which chains to empty.

        Each step is a transaction. Rules refer to all other objects; maps to chains and stateful objects. Kernels
        before 6.2 refuse to delete a chain in the transaction that deletes the last reference to it.
        """
        chains = sorted(each for each in self.unhooked_objects if each.kind == _CHAIN)
        if chains:
            yield (), tuple(chain.name for chain in chains)
        containers = {each for each in self.unhooked_objects if each.kind in ("set", "map", "flowtable")}
        stateful = self.unhooked_objects - containers - set(chains)
        by_text = {each for each in stateful if each.kind in TEXT_KINDS}
        for step in (sorted(containers), chains, sorted(stateful - by_text), sorted(by_text)):
            if step:
                yield tuple(step), ()


def find_foreign_objects(listing: TableListing, family: Family, config: Config) -> ForeignObjects:
    """Return the foreign objects of a table.

    A base chain is foreign unless knft has a base chain of this name. Other chains with names as knft gives them to
    chains that depend on Services, and empty marker chains of any version, are knft's: a sync writes or deletes them.
    """
    constant_chains = {chain.name: chain for chain in layout.constant_chains_with_markers(family, config)}
    base_chains = {name for name in listing.hooks if name not in constant_chains or constant_chains[name].hook is None}
    chains = {
        name
        for name, rules in listing.rule_counts.items()
        if name not in constant_chains
        and not (_depends_on_services(name, config) or (layout.is_marker(name) and not rules))
    } - base_chains
    declared = layout.container_names(family, config)
    containers = {each for each in listing.declarations if each.name not in declared}
    return ForeignObjects(
        frozenset(NamedObject(_CHAIN, name) for name in base_chains),
        frozenset(NamedObject(_CHAIN, name) for name in chains) | containers | listing.other_objects,
    )


def unused_objects(family: Family, config: Config) -> frozenset[NamedObject]:
    """Return the sets, maps and chains that knft itself creates with other options than these.

    They are foreign objects, but no other program has put them into the table.
    """
    return frozenset((*_unused_counters(family, config), *_unused_localhost_objects(family, config)))


def _unused_counters(family: Family, config: Config) -> Iterator[NamedObject]:
    if config.service_counters:
        return
    for chain in counter_chains(family):
        yield NamedObject(_CHAIN, chain.name)
        yield NamedObject(_CHAIN, f"{RESET_PREFIX}{chain.name}")
    for name in COUNTER_SETS:
        yield NamedObject("set", name)


def _unused_localhost_objects(family: Family, config: Config) -> Iterator[NamedObject]:
    used = config.rejected_localhost_protocols(family)
    if not used:
        yield NamedObject("map", LOCALHOST_REJECTS)
    for protocol in NFT_PROTOCOLS:
        if protocol not in used:
            yield NamedObject(_CHAIN, reject_chain_name(protocol))


def _depends_on_services(chain: str, config: Config) -> bool:
    return chain.startswith(OWNED_CHAIN_PREFIXES) or configured_shared_chain(chain, config) is not None


def describe(objects: Collection[NamedObject]) -> str:
    """Return the names of objects as one line of limited length for a log."""
    names = [str(each) for each in sorted(objects)]
    more = len(names) - MAX_NAMED_OBJECTS
    return ", ".join(names[:MAX_NAMED_OBJECTS]) + (f" and {more} more" if more > 0 else "")
