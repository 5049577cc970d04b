"""The chains of a sticky Service port that send remembered clients to their endpoints: one rule for each endpoint.

A Service port with many endpoints has its rules in blocks, so that a changed endpoint does not write all of them again:

    sticky-K-cluster-known    up to BLOCK_SIZE endpoints: their rules; more: a jump to each block
    sticky-K-cluster-known-b  the rules of the indexes from b * BLOCK_SIZE to (b + 1) * BLOCK_SIZE - 1

See docs/design/sticky-layout.md#blocks.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from weakref import WeakValueDictionary

from msgspec import Struct

from knft.families import NftFamily
from knft.nft import expressions as nft
from knft.nft.objects import Chain, Target
from knft.render.names import AFFINITY, STICKY_PREFIX

BLOCK_SIZE = 64
"""The most rules that a changed endpoint writes in one chain of a Service port.

Half the size would halve the cost of a change, but double the number of chains, which libnftables lists before each
command.
"""


class StickyRules(Struct, frozen=True):
    """What the affinity rules of one Service port have in common, except their indexes.

    ``family`` and ``protocol`` are nft keywords, ``number`` is the sticky Service port's, ``timeout`` is in seconds.
    """

    family: NftFamily
    protocol: str
    number: int
    timeout: int

    def update(self, index: nft.Constant | nft.RandomNumber) -> nft.Update:
        """Return the statement that remembers the packet's client with an index, for the whole timeout."""
        client = nft.Payload(self.family, "saddr")
        return nft.Update(AFFINITY, nft.Concat((client, nft.Constant(self.number), index)), self.timeout)

    def remembered(self, index: int, target: Target) -> nft.Rule:
        """Return the rule that sends the clients that are remembered with an index to its endpoint."""
        renew = self.update(nft.Constant(index))
        protocol = nft.Match(nft.Meta("l4proto"), self.protocol)
        is_remembered = nft.Match(renew.key, nft.Reference(AFFINITY))
        return nft.Rule((is_remembered, renew, protocol, nft.Dnat(self.family, *target)))


def remembered_chains(name: str, rules: StickyRules, targets: Mapping[int, Target]) -> Iterator[Chain]:
    """Yield the chain ``name`` and its blocks, if any; ``targets`` are the endpoints by index, sorted."""
    if len(targets) <= BLOCK_SIZE:
        yield Chain(name, tuple(rules.remembered(index, target) for index, target in targets.items()))
        return
    by_block = groupby(targets.items(), key=lambda item: block_of(item[0]))
    blocks = [_block(f"{name}-{number}", rules, tuple(items)) for number, items in by_block]
    yield Chain(name, tuple(nft.Rule((nft.Jump(block.name),)) for block in blocks))
    yield from blocks


def block_of(index: int) -> int:
    """Return the number of the block of an index."""
    return index // BLOCK_SIZE


_BLOCK_NAME = re.compile(rf"{STICKY_PREFIX}\d+-\w+-known-\d+")


def is_block(chain: str) -> bool:
    """Return whether a chain has the name of a block of ``remembered_chains``."""
    return _BLOCK_NAME.fullmatch(chain) is not None


_blocks: WeakValueDictionary[tuple[str, StickyRules, tuple[tuple[int, Target], ...]], Chain] = WeakValueDictionary()
"""The blocks in use, so that an unchanged block is not rendered again."""


def _block(name: str, rules: StickyRules, items: tuple[tuple[int, Target], ...]) -> Chain:
    key = (name, rules, items)
    block = _blocks.get(key)
    if block is None:
        block = Chain(name, tuple(rules.remembered(index, target) for index, target in items))
        _blocks[key] = block
    return block
