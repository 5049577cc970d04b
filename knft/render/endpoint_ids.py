"""Gives IDs to the endpoints of Service ports with session affinity.

The kernel remembers the endpoint of a client by this ID, and knft never deletes a client from the kernel's set. So an
endpoint keeps its ID as long as it exists, and no other endpoint of the Service port may get it before all its clients
have expired: an endpoint that is added gets a new ID, even if it existed before. Two Service ports may use the same ID:
clients of one then may prefer an endpoint of the other when they connect to that for the first time.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping

from knft.nft.objects import Array, ArrayName, Contents, EndpointId, Target
from knft.render.names import endpoint_ids_map

_IDS = (1 << 32) - 2
"""How many IDs there are. They are packet priorities; nft has names for 0 and for 2**32 - 1."""


def previous_ids(
    arrays: Mapping[ArrayName, Array], pairs: Iterable[tuple[ArrayName, ArrayName]]
) -> dict[Target, EndpointId]:
    """Return the IDs that endpoints had; ``pairs`` are the names of arrays of endpoints, and of their IDs."""
    found: dict[Target, EndpointId] = {}
    for endpoints, ids in pairs:
        for target, number in zip(arrays.get(endpoints, ()), arrays.get(ids, ()), strict=False):
            if isinstance(target, tuple) and isinstance(number, int):
                found.setdefault(target, number)
    return found


def ids_of_contents(contents: Contents) -> dict[Target, EndpointId]:
    """Return the IDs of the endpoints of one Service port; ``contents`` are all that it has in the table."""
    pairs = ((name, ArrayName(endpoint_ids_map(name.container), name.prefix)) for name in contents.arrays)
    return previous_ids(contents.arrays, pairs)


def assign_ids(
    targets: Collection[Target], previous: Mapping[Target, EndpointId], seed: str
) -> dict[Target, EndpointId]:
    """Return the ID of each endpoint: its previous one, or a new one that depends on ``seed``.

    The seed must differ each time: otherwise an endpoint that is removed and added again would get the same ID.
    """
    # By ID first, because another program may have given several endpoints the same one, or an invalid one.
    kept = {previous[target]: target for target in targets if 1 <= previous.get(target, 0) <= _IDS}
    assigned = {target: number for number, target in kept.items()}
    if len(assigned) == len(targets):
        return assigned
    taken = set(previous.values())
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    for target in targets:
        if target not in assigned:
            while 1 + number % _IDS in taken:
                number += 1
            assigned[target] = 1 + number % _IDS
            number += 1
    return assigned
