"""Auditing: whether the kernel holds what was committed, found out beside the syncs and without holding them up.

A sync may be committed while the table is listed: what it touches is left out of the comparison.
"""

from msgspec import Struct

from knft.config import Config
from knft.delta.contents import compare
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.nft.codec.rule_digests import expected_digest
from knft.nft.objects import Chain, Contents, Key
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.sync.basis import as_expected, leave_alone_what_is_not_ours


class Snapshot(Struct, frozen=True):
    """What was committed at one moment: the contents of the table, and the names of chains that have no owner."""

    contents: Contents
    chains: frozenset[str]


Place = tuple[str, Key]
"""A container and a key in it; or a chain, and no key."""


def places(transaction: Transaction) -> set[Place]:
    """Return what a transaction touches."""
    removed = (*transaction.removed.items(), *transaction.deferred_removals.items())
    touched = {(name, key) for name, keys in removed for key in keys}
    touched |= {(name, key) for name, added in transaction.added.items() for key in added}
    return touched | {
        (name, ())
        for name in (
            *transaction.deleted_chains,
            *(chain.name for chain in (*transaction.prepared_chains, *transaction.chains)),
        )
    }


def _is_listed(chain: Chain, listing: TableListing) -> bool:
    if chain.rules:
        return listing.rules.get(chain.name) == expected_digest(chain.rules)
    # One that was found and is kept: it is not known what its rules should say.
    return bool(listing.chains.get(chain.name))


def differences(listing: TableListing | None, committed: Snapshot, family: Family, config: Config) -> set[Place]:
    """Return where a listing is not what was committed; where there is no table, one place stands for all."""
    if listing is None:
        return {("table", ())}
    leave_alone_what_is_not_ours(listing.contents, family)
    declared = {container.name for container in layout.containers(family)}
    owned = committed.contents.chains
    found = Contents(listing.contents.entries, listing.contents.arrays, listing.contents.members, {})
    changes = compare(
        found, Contents(committed.contents.entries, committed.contents.arrays, committed.contents.members)
    )
    found_places = {(name, key) for name, keys in changes.removed.items() for key in keys}
    found_places |= {(name, key) for name, added in changes.added.items() for key in added}
    expected = set(as_expected(listing, family, config))
    found_places |= {(name, ()) for name in committed.chains - expected}
    found_places |= {(name, ()) for name, chain in owned.items() if not _is_listed(chain, listing)}
    return found_places | {(name, ()) for name in listing.unreadable & declared}
