"""Session affinity (ClientIP): the rules that send a client to the endpoint that it reached before.

A Service port with session affinity is called sticky. Each of its endpoints has an ID (``knft.render.endpoint_ids``).
The dynamic set ``affinity-clients``, shared by all Service ports, has an element client . ID for each client that was
sent to an endpoint; its timeout is the Service's. A map of endpoint IDs has the ID for each key of an endpoint map.

Rules cannot look up one map with the value of another, except through a field of the packet: they put the ID into its
priority, and set that to 0 again. For a pool of three endpoints:

    affinity-10800-known-tcp-0  for each index, here 0 to 3: is the client with the ID of this index in the set?
                                ─▶ restart the timeout; dnat to the endpoint with this index
    affinity-10800-pool-tcp-3   jumps there, which ends for a known client
                                otherwise adds the client with the ID of a random index to the set, and jumps again
                                if the set is full, the client continues in pool-tcp-3, as without affinity

No chain belongs to a Service port: those that have a timeout in common share them, as pool chains are shared. So a
client has one endpoint for all frontends of a Service port, and policy Local never sends it to the endpoint on another
node that it reached through another frontend, because that has no index there. See docs/design/sticky-layout.md.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from knft.families import Family, NftFamily
from knft.nft import expressions as nft
from knft.nft.objects import Container
from knft.render import names

MAX_CLIENTS = 1 << 22
"""The size of the set of clients, in pairs of client and endpoint. New clients have no affinity while it is full."""

MAX_BLOCK_SIZE = 64
"""The most indexes for which a chain has rules."""

_FIRST_BLOCK_SIZE = 4


def clients_set(family: Family) -> Container:
    """Return the declaration of the set of clients."""
    key = f"{family.nft} saddr . meta priority"
    comment = "clients with session affinity, and the IDs of their endpoints"
    return Container(names.CLIENTS, key, by_expression=True, dynamic_size=MAX_CLIENTS, comment=comment)


class EndpointLookup(Struct, frozen=True):
    """How rules find an endpoint by its index.

    ``frontend`` is the part of the key before the index, ``endpoints`` and ``ids`` are the maps. ``conditions`` must
    precede a translation. ``family`` is an nft keyword.
    """

    family: NftFamily
    frontend: tuple[nft.Payload | nft.Constant, ...]
    endpoints: str
    ids: str
    conditions: tuple[nft.Match, ...] = ()

    def key(self, index: nft.RandomNumber | nft.Constant) -> nft.Concat:
        """Return the key of an endpoint."""
        return nft.Concat((*self.frontend, index))

    def set_priority(self, index: nft.RandomNumber | nft.Constant) -> nft.SetPriorityFromMap:
        """Return the statement that puts the endpoint's ID into the packet's priority."""
        return nft.SetPriorityFromMap(self.key(index), self.ids)

    def translate(self, index: nft.RandomNumber | nft.Constant) -> nft.DnatFromMap:
        """Return the statement that translates to the endpoint; it has no effect if there is none with this index."""
        return nft.DnatFromMap(self.family, self.key(index), self.endpoints)


def block_starts(size: int) -> Iterator[int]:
    """Yield the first index of each block of indexes that ``size`` endpoints need: 0, 4, 8, 16, 32, 64, 128, 192, ...

    Small blocks first, so that Service ports with few endpoints and an unusual timeout need few rules.
    """
    start = 0
    while start < size:
        yield start
        start = block_end(start)


def covered_end(size: int) -> int:
    """Return the index behind the last block that ``size`` endpoints need; 0 for none."""
    return max(map(block_end, block_starts(size)), default=0)


def block_end(start: int) -> int:
    """Return the index behind the block that begins with ``start``."""
    return start + min(max(start, _FIRST_BLOCK_SIZE), MAX_BLOCK_SIZE)


def known_rules(lookup: EndpointLookup, indexes: range, timeout: int) -> tuple[nft.Rule, ...]:
    """Return the rules that send the clients of these indexes to their endpoints; ``timeout`` is in seconds.

    They apply to any number of endpoints: an index without an endpoint has no ID.
    """
    renew = _remember(lookup, timeout)
    is_known = nft.Match(renew.key, nft.Reference(names.CLIENTS))
    return tuple(
        nft.Rule(
            (
                *lookup.conditions,
                lookup.set_priority(nft.Constant(index)),
                is_known,
                renew,
                nft.ClearPriority(),
                lookup.translate(nft.Constant(index)),
            )
        )
        for index in indexes
    )


def affinity_rules(lookup: EndpointLookup, size: int, timeout: int, known: Sequence[str]) -> Iterator[nft.Rule]:
    """Yield the rules that precede those of a pool of ``size`` endpoints; ``timeout`` is in seconds.

    The next rule must clear the priority. ``known`` are the names of the chains with the rules of all indexes. If the
    set is full, its update ends the rule.
    """
    jumps = [nft.Rule((nft.Jump(chain),)) for chain in known]
    yield from jumps
    yield nft.Rule((lookup.set_priority(nft.RandomNumber(size)), _remember(lookup, timeout)))
    yield from jumps


def _remember(lookup: EndpointLookup, timeout: int) -> nft.Update:
    """Return the statement that adds the client with the ID in the packet's priority, for the whole timeout."""
    key = nft.Concat((nft.Payload(lookup.family, "saddr"), nft.Meta("priority")))
    return nft.Update(names.CLIENTS, key, timeout)
