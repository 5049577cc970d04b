"""Clients of sticky Service ports in the table of an earlier version keep their endpoints.

Earlier versions gave a number K to a sticky Service port and an index to each of its endpoints. Elements of the maps
``sticky-ports`` and ``sticky-endpoints`` recorded them, verdicts led to chains ``sticky-K-...``, and the set
``affinity`` had an element client . K . index for each client. This version keeps these containers empty
(``knft.render.layout``), so that an earlier version adopts its table after a rollback.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from knft.nft.expressions import Goto, Jump
from knft.nft.objects import Array, ArrayName, Contents, EndpointId, Entry, Key, Target, Value
from knft.render.endpoint_ids import ids_of_contents
from knft.render.names import EARLIER_AFFINITY, EARLIER_STICKY_ENDPOINTS, WIDE_IDS, is_ids_map
from knft.render.pools import affinity_timeout, parse_shared_chain
from knft.render.wide import wide_number

_CHAIN = re.compile(r"sticky-(\d{1,5})-[\w-]+")


def has_earlier_affinity(found: Contents) -> bool:
    """Tell whether an earlier version has written the contents of a table, and has sticky Service ports."""
    return any(name.container == EARLIER_STICKY_ENDPOINTS for name in found.arrays)


def without_former_ids(found: Contents) -> Mapping[ArrayName, Array]:
    """Return the arrays that were found in a table, without endpoint IDs that an earlier version did not know.

    This version's set may still have clients that got other endpoints from an earlier version, after a rollback. IDs
    are in force if the verdict of their frontend leads to a chain of this version that uses them.
    """
    if not has_earlier_affinity(found):
        return found.arrays
    used = set(_frontends_with_ids(found))
    return {
        name: array for name, array in found.arrays.items() if not is_ids_map(name.container) or _frontend(name) in used
    }


def _frontend(ids: ArrayName) -> tuple[str, Key]:
    """Return the protocol and the frontend of an array of IDs; for a wide Service port its map and number."""
    if ids.container == WIDE_IDS:
        return WIDE_IDS, ids.prefix[:1]
    return ids.container.rpartition("-")[2], ids.prefix


def _frontends_with_ids(found: Contents) -> Iterator[tuple[str, Key]]:
    """Yield the frontends, in the form of ``_frontend``, whose verdicts lead to chains that use IDs."""
    for (_, key), entry in found.entries.items():
        if not isinstance(entry.verdict, Goto):
            continue
        number, shared = wide_number(entry.verdict.chain), parse_shared_chain(entry.verdict.chain)
        if number is not None:
            yield WIDE_IDS, (number,)
        elif shared is not None and affinity_timeout(shared):
            yield str(key[-2]), (*key[:-2], key[-1])


FormerIds = Mapping[int, Mapping[Target, EndpointId]]
"""The IDs of the endpoints of sticky Service ports by the number that an earlier version gave to the Service port."""


def former_ids(found: Contents, desired: Iterable[Contents]) -> FormerIds:
    """Return the IDs of the Service ports that an earlier version serves, and this version from now on.

    ``found`` are the contents of the table; ``desired`` are those of Service ports from now on.
    """
    numbers = {place: number for place, entry in found.entries.items() if (number := _number(entry)) is not None}
    ids: dict[int, Mapping[Target, EndpointId]] = {}
    for contents in desired:
        for number in {numbers[place] for place in contents.entries if place in numbers}:
            ids[number] = ids_of_contents(contents)
    return ids


def former_clients(
    found: Contents, ids: FormerIds, dynamic_elements: Mapping[str, Mapping[Key, Value]]
) -> dict[Key, Value]:
    """Return the clients of an earlier version's table as elements of this version's set.

    A client whose endpoint no longer exists is left out.
    """
    clients: dict[Key, Value] = {}
    for key, value in dynamic_elements.get(EARLIER_AFFINITY, {}).items():
        match key:
            case (str(client), int(number), int(index)) if number in ids:
                target = _at(found.arrays.get(ArrayName(EARLIER_STICKY_ENDPOINTS, (number,)), ()), index)
                if isinstance(target, tuple) and target in ids[number]:
                    clients[client, ids[number][target]] = value
    return clients


def _number(entry: Entry) -> int | None:
    """Return the number of the sticky Service port to which an entry leads."""
    found = _CHAIN.fullmatch(entry.verdict.chain) if isinstance(entry.verdict, Goto | Jump) else None
    return int(found[1]) if found is not None else None


def _at(array: Array, index: int) -> Target | EndpointId | None:
    return array[index] if index < len(array) else None
