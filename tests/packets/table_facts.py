"""The contents of knft's tables in the kernel, without the parts that depend on the history of the cluster.

These parts are the order of endpoints in pools, unreachable pools and chains, and numbers, indexes and leftovers of
sticky Service ports (docs/verification.md#equivalence).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from knft.families import Family
from knft.kernel.table import KernelTable
from knft.nft.codec.listing import TableListing
from knft.nft.objects import Key
from knft.render.names import STICKY_ENDPOINTS, STICKY_PORTS, STICKY_PREFIX, TABLE
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
    sticky = {
        name.prefix for name, array in contents.arrays.items() if name.container == STICKY_ENDPOINTS and any(array)
    }
    facts: Facts = dict.fromkeys(contents.members, True)
    facts |= {
        place: entry.verdict if place[0] == STICKY_PORTS else entry
        for place, entry in contents.entries.items()
        if place[0] != STICKY_PORTS or _key(place) in sticky
    }
    facts |= {(name.container, name.prefix): _targets(array) for name, array in contents.arrays.items() if any(array)}
    facts |= {("chain", name): rules for name, rules in listing.rule_counts.items() if _is_constant(name)}
    return facts


def _key(place: tuple[str, Key]) -> Key:
    return place[1]


def _targets(array: Iterable[Any]) -> Counter[Any]:
    return Counter(target for target in array if target is not None)


def _is_constant(chain: str) -> bool:
    return not chain.startswith(STICKY_PREFIX) and parse_shared_chain(chain) is None
