"""Clients of sticky Service ports in the table of an earlier version keep their endpoints.

Earlier versions gave a number K to a sticky Service port and an index to each of its endpoints. Elements of the maps
``sticky-ports`` and ``sticky-endpoints`` recorded them, verdicts led to chains ``sticky-K-...``, and the set
``affinity`` had an element client . K . index for each client. This version keeps these containers empty
(``knft.render.layout``), so that an earlier version adopts its table after a rollback.
"""

import re
from collections.abc import Iterable, Mapping

from knft.nft.expressions import Goto, Jump
from knft.nft.objects import Array, ArrayName, Contents, EndpointId, Entry, Key, Target, Value
from knft.render.endpoint_ids import ids_of_contents
from knft.render.names import EARLIER_AFFINITY, EARLIER_STICKY_ENDPOINTS

_CHAIN = re.compile(r"sticky-(\d{1,5})-[\w-]+")


def has_earlier_affinity(found: Contents) -> bool:
    """Tell whether an earlier version has written the contents of a table, and has sticky Service ports."""
    return any(name.container == EARLIER_STICKY_ENDPOINTS for name in found.arrays)


def without_former_ids(found: Contents) -> Mapping[ArrayName, Array]:
    """Return the arrays that were found in a table, without endpoint IDs if an earlier version has written it since.

    This version's set may still have clients that got other endpoints from the earlier version.
    """
    if not has_earlier_affinity(found):
        return found.arrays
    return {name: array for name, array in found.arrays.items() if "endpoint-ids" not in name.container}


def former_clients(
    found: Contents, desired: Iterable[Contents], dynamic_elements: Mapping[str, Mapping[Key, Value]]
) -> dict[Key, Value]:
    """Return the clients of an earlier version's table as elements of this version's set.

    ``desired`` are the contents of all Service ports from now on. A client whose endpoint no longer exists is left out.
    """
    numbers = {place: number for place, entry in found.entries.items() if (number := _number(entry)) is not None}
    ids: dict[int, dict[Target, EndpointId]] = {}
    for contents in desired:
        for number in {numbers[place] for place in contents.entries if place in numbers}:
            ids[number] = ids_of_contents(contents)
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
