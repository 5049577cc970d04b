"""What the kernel holds of knft, without what two histories of one cluster may differ in (DESIGN.md 2).

That is the order in pools, the pools and chains that nothing leads to, and numbers, indexes and leftovers of sticky
ports.
"""

from collections import Counter
from typing import Any

from knft.kernel.table import KernelTable
from knft.model.names import Family
from knft.nft.codec.listing import Listing
from knft.nft.objects import Key
from knft.render.names import NFT_FAMILIES, STICKY_ENDPOINTS, STICKY_PORTS, STICKY_PREFIX, TABLE
from knft.render.pools import parse_shared_chain
from tests.kernel.nft_process import library_in
from tests.support.lab.namespace import Namespace

Held = dict[tuple[str, object], Any]


def held(namespace: Namespace) -> dict[Family, Held]:
    """Return what both tables hold, fact by fact."""
    library = library_in(namespace)
    with namespace.entered():
        tables = {family: KernelTable(library, NFT_FAMILIES[family], TABLE).read() for family in Family}
    return {family: _facts(listing) for family, listing in tables.items() if listing is not None}


def differences(expected: Held, found: Held) -> list[str]:
    """Return the facts that are not the same."""
    places = sorted(expected.keys() | found.keys(), key=str)
    return [
        f"{place}: expected {expected.get(place)}, found {found.get(place)}"
        for place in places
        if expected.get(place) != found.get(place)
    ]


def _facts(listing: Listing) -> Held:
    contents = listing.contents
    sticky = {
        name.prefix for name, array in contents.arrays.items() if name.container == STICKY_ENDPOINTS and any(array)
    }
    facts: Held = dict.fromkeys(contents.members, True)
    facts |= {
        place: entry.verdict if place[0] == STICKY_PORTS else entry
        for place, entry in contents.entries.items()
        if place[0] != STICKY_PORTS or _key(place) in sticky
    }
    facts |= {(name.container, name.prefix): _targets(array) for name, array in contents.arrays.items() if any(array)}
    facts |= {("chain", name): rules for name, rules in listing.chains.items() if _is_constant(name)}
    return facts


def _key(place: tuple[str, Key]) -> Key:
    return place[1]


def _targets(array: tuple[Any, ...]) -> Counter[Any]:
    return Counter(target for target in array if target is not None)


def _is_constant(chain: str) -> bool:
    return not chain.startswith(STICKY_PREFIX) and parse_shared_chain(chain) is None
