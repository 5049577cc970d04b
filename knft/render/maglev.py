"""Maglev tables: which endpoint serves which hash of a client (docs/design/consistent-hashing.md).

A table has one slot for each value of the hash. The endpoints take turns: each takes the next free slot of its own
permutation of the slots (Eisenbud and others, "Maglev: A Fast and Reliable Software Network Load Balancer", 2016,
section 3.4). So all endpoints have nearly the same number of slots, and few slots change if an endpoint is added or
removed. A permutation depends only on the endpoint's address and port, so all nodes compute the same table.
"""

import hashlib
from collections.abc import Iterable

from knft.nft.objects import Target

TABLE_SIZES = (1021, 16381, 65521)
"""The sizes of tables. They are primes, so that any step through a table visits all of its slots."""

SLOTS_PER_ENDPOINT = 20
"""The least average number of slots of an endpoint, except in tables of the largest size."""


def table_size(endpoints: int) -> int:
    """Return the size of the table for a number of endpoints, 0 without endpoints.

    It depends on nothing else, so that it is the same on all nodes and after a restart. The sizes are far apart,
    because most clients get another endpoint when it changes.
    """
    if not endpoints:
        return 0
    return next((size for size in TABLE_SIZES if size >= SLOTS_PER_ENDPOINT * endpoints), TABLE_SIZES[-1])


def maglev_table(targets: Iterable[Target], size: int) -> tuple[Target, ...]:
    """Return the target of each of ``size`` slots, which do not depend on the order of ``targets``.

    ``size`` is a prime number; it is 0 if there are no targets.
    """
    remaining = sorted(set(targets))
    slots: list[Target | None] = [None] * size
    positions, steps = zip(*(_permutation(target, size) for target in remaining), strict=True) if size else ((), ())
    turns = list(zip(remaining, range(len(remaining)), steps, strict=True))
    next_slots, free = list(positions), size
    while free:
        for target, turn, step in turns:
            slot = next_slots[turn]
            while slots[slot] is not None:
                slot = (slot + step) % size
            slots[slot], next_slots[turn] = target, (slot + step) % size
            free -= 1
            if not free:
                break
    return tuple([target for target in slots if target is not None])


def _permutation(target: Target, size: int) -> tuple[int, int]:
    """Return the first slot of a target's permutation, and the step from each to the next."""
    address, port = target
    digest = hashlib.sha256(f"{address} {port}".encode()).digest()
    return int.from_bytes(digest[:8]) % size, 1 + int.from_bytes(digest[8:16]) % (size - 1)
