"""CacheFilter: limits what libnftables lists before it runs a transaction that changes elements only.

libnftables 1.0.6 first lists the tables, chains, sets and maps of all programs, which takes nine tenths of its time for
a replaced endpoint. It has no option against that. But if the last commands are ``list`` commands for one chain and one
map, it lists only these. See docs/design/cache-filter.md.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from knft.nft.codec.tables import Json, transaction_json
from knft.nft.transaction import Transaction


class CacheFilter(Struct, frozen=True):
    """What the filter needs to know of a table: a chain without rules, and which sets and maps may be changed with it.

    ``kinds`` has the names of those without intervals, because libnftables must know the elements of the others.
    """

    chain: str
    kinds: Mapping[str, Literal["set", "map"]]

    def commands(self, transaction: Transaction) -> str | None:
        """Return a transaction as JSON, with the filter; None if libnftables must know more of the table.

        Run it with ``terse``, otherwise libnftables lists the elements of all sets and maps. It prints what it lists.
        """
        changed = transaction.removed.keys() | transaction.added.keys() | transaction.deferred_removals.keys()
        if transaction.writes_chains or not changed <= self.kinds.keys():
            return None
        return transaction_json(transaction, self._filter(transaction, changed)).decode()

    def _filter(self, transaction: Transaction, changed: Collection[str]) -> Iterator[Json]:
        where = {"family": transaction.family, "table": transaction.table}
        # With this one, ``terse`` counts. Few programs have tables of this family.
        yield {"list": {"ruleset": {"family": "arp"}}}
        # The filter has room for one name. Without it, libnftables lists the sets and maps of this table.
        if len(changed) == 1:
            (name,) = changed
            yield {"list": {self.kinds[name]: {**where, "name": name}}}
        # The last one: libnftables 1.1 forgets the others.
        yield {"list": {"chain": {**where, "name": self.chain}}}
