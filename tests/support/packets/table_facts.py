"""The contents of knft's tables in the kernel, without the parts that depend on the history of the cluster.

These parts are the order of endpoints in pools, unreachable pools and chains, and endpoint IDs
(docs/verification.md#equivalence).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from knft.families import Family
from knft.kernel.table import KernelTable
from knft.nft.codec.listing import TableListing
from knft.render.names import OWNED_CHAIN_PREFIXES, TABLE
from knft.render.pools import parse_shared_chain
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in

Facts = dict[tuple[str, object], Any]


def table_facts(namespace: Namespace) -> dict[Family, Facts]:
    """Return the contents of both tables, as facts."""
    library = library_in(namespace)
    with namespace.entered():
        tables = {family: KernelTable(library, family, TABLE).read() for family in Family}
    return {family: _facts(listing) for family, listing in tables.items() if listing is not None}


def differences(expected: Facts, found: Facts) -> list[str]:
    """Return the facts that differ."""
    places = sorted(expected.keys() | found.keys(), key=str)
    return [
        f"{place}: expected {expected.get(place)}, found {found.get(place)}"
        for place in places
        if expected.get(place) != found.get(place)
    ]


def _facts(listing: TableListing) -> Facts:
    contents = listing.contents
    facts: Facts = dict.fromkeys(contents.members, True)
    facts |= dict(contents.entries.items())
    facts |= {(name.container, name.prefix): _values(array) for name, array in contents.arrays.items() if any(array)}
    facts |= {("chain", name): rules for name, rules in listing.rule_counts.items() if _is_constant(name)}
    return facts


def _values(array: Iterable[Any]) -> Counter[Any]:
    """Return the endpoints of an array; of endpoint IDs, only how many there are."""
    return Counter("an ID" if isinstance(value, int) else value for value in array if value is not None)


def _is_constant(chain: str) -> bool:
    return not chain.startswith(OWNED_CHAIN_PREFIXES) and parse_shared_chain(chain) is None
