"""CacheFilter: limits what libnftables lists before it runs a transaction that changes elements only.

libnftables 1.0.6 first lists the tables, chains, sets and maps of all programs, which takes most of its time for a
replaced endpoint. It has no option against that. But if the last commands are ``list`` commands for one chain and one
map, it lists only these. See docs/design/cache-filter.md.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import Struct

from knft.families import NftFamily
from knft.nft.codec.tables import Json, transaction_json
from knft.nft.transaction import Transaction

_Kind = Literal["set", "map"]


class CacheFilter(Struct, frozen=True):
    """What the filter needs to know of a table: a chain without rules, and which sets and maps may be changed with it.

    ``kinds`` has the names of those without intervals, because libnftables must know the elements of the others.
    """

    chain: str
    kinds: Mapping[str, _Kind]

    def commands(self, transaction: Transaction) -> str | None:
        """Return a transaction as JSON, with the filter; None if libnftables must know more of the table.

        Run it with ``terse``, otherwise libnftables lists the elements of all sets and maps. It prints what it lists.
        """
        changed = transaction.removed.keys() | transaction.added.keys() | transaction.deferred_removals.keys()
        if transaction.writes_chains or not changed <= self.kinds.keys():
            return None
        # The filter has room for one set or map. Without any, libnftables lists those of this table.
        only = next(iter(changed)) if len(changed) == 1 else ""
        lists = _encoded_lists(transaction.family, transaction.table, self.chain, self.kinds.get(only), only)
        return transaction_json(transaction, lists).decode()


@lru_cache(maxsize=1 << 8)
def _encoded_lists(family: NftFamily, table: str, chain: str, kind: _Kind | None, name: str) -> tuple[msgspec.Raw, ...]:
    return tuple(msgspec.Raw(msgspec.json.encode(each)) for each in _lists(family, table, chain, kind, name))


def _lists(family: NftFamily, table: str, chain: str, kind: _Kind | None, name: str) -> Iterator[Json]:
    where = {"family": family, "table": table}
    # With this one, ``terse`` counts. Few programs have tables of this family.
    yield {"list": {"ruleset": {"family": "arp"}}}
    if kind is not None:
        yield {"list": {kind: {**where, "name": name}}}
    # The last one: libnftables 1.1 forgets the others.
    yield {"list": {"chain": {**where, "name": chain}}}
