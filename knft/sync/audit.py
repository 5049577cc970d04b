"""The audit: compare the kernel's table with the programmed contents, without blocking syncs.

A sync may commit while the table is listed. The comparison ignores the elements and chains that such a sync changes.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from knft.config import Config
from knft.delta.diff import diff_contents
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.nft.codec.rule_digests import expected_digest
from knft.nft.objects import Chain, Contents, Key
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.sync.table_snapshot import discard_foreign_contents, up_to_date_chains


class ExpectedContents(Struct, frozen=True):
    """The programmed contents of all owners, merged, and the names of the chains without an owner."""

    contents: Contents
    chains: frozenset[str]


TablePosition = tuple[str, Key]
"""A container and the key of an element; or a chain and an empty key."""


def changed_positions(transaction: Transaction) -> set[TablePosition]:
    """Return the elements and chains that a transaction changes."""
    removed = (*transaction.removed.items(), *transaction.deferred_removals.items())
    changed = {(name, key) for name, keys in removed for key in keys}
    changed |= {(name, key) for name, added in transaction.added.items() for key in added}
    return changed | {
        (name, ())
        for name in (
            *transaction.deleted_chains,
            *(chain.name for chain in (*transaction.new_chains, *transaction.chains)),
        )
    }


def _rules_match(chain: Chain, listing: TableListing) -> bool:
    if chain.rules:
        return listing.rule_digests.get(chain.name) == expected_digest(chain.rules)
    # A chain that was found in the kernel and kept: its expected rules are unknown.
    return bool(listing.rule_counts.get(chain.name))


def find_differences(
    listing: TableListing | None, expected: ExpectedContents, family: Family, config: Config
) -> set[TablePosition]:
    """Return the positions where a listing differs from the expected contents.

    A missing table counts as one difference.
    """
    if listing is None:
        return {("table", ())}
    discard_foreign_contents(listing.contents, family, config)
    declared = layout.container_names(family, config)
    owned = expected.contents.chains
    listed = Contents(listing.contents.entries, listing.contents.arrays, listing.contents.members, {})
    changes = diff_contents(
        listed, Contents(expected.contents.entries, expected.contents.arrays, expected.contents.members)
    )
    differences = {(name, key) for name, keys in changes.removed.items() for key in keys}
    differences |= {(name, key) for name, added in changes.added.items() for key in added}
    up_to_date = set(up_to_date_chains(listing, family, config))
    differences |= {(name, ()) for name in expected.chains - up_to_date}
    differences |= {(name, ()) for name, chain in owned.items() if not _rules_match(chain, listing)}
    return differences | {(name, ()) for name in listing.unreadable & declared}


def listed_rules(listing: TableListing | None, differences: Iterable[TablePosition]) -> dict[str, str]:
    """Return the digests of the listed rules of the chains among ``differences``."""
    return {name: listing.rule_digests.get(name, "") for name, key in differences if not key} if listing else {}


def chains_with_other_listing_format(listed: Mapping[str, str], before: Mapping[str, str]) -> set[TablePosition]:
    """Return the chains whose rules are right, although they are not listed as expected.

    They were listed with the same digest ``before`` knft wrote them again, so this version of libnftables lists the
    rules in another way than the versions that knft knows.
    """
    return {(name, ()) for name, digest in listed.items() if digest and before.get(name) == digest}
