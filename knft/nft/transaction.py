"""A transaction: what changes in one table, all at once or not at all."""

from collections.abc import Mapping

from msgspec import Struct, structs

from knft.nft.objects import Chain, Family, Key, Value


class Transaction(Struct, frozen=True):
    """Changes of one table, in the order in which they are sent.

    First ``made`` chains, to which nothing leads before, and ``chains``, which have exactly these rules afterwards
    whether or not they existed; then ``removed`` elements, then ``added`` ones: a verdict needs its chain, and a value
    is replaced by removing and adding its key. Then ``late`` elements are removed, which packets that are under way
    meanwhile still look for, and last ``dropped`` chains, which nothing may refer to any more.
    """

    family: Family
    table: str
    chains: tuple[Chain, ...] = ()
    made: tuple[Chain, ...] = ()
    removed: Mapping[str, tuple[Key, ...]] = {}
    added: Mapping[str, Mapping[Key, Value]] = {}
    late: Mapping[str, tuple[Key, ...]] = {}
    dropped: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not (self.made or self.chains or self.removed or self.added or self.late or self.dropped)

    def ahead(self) -> "Transaction":
        """Return what can be sent before the rest, because no packet gets there."""
        return Transaction(self.family, self.table, made=self.made)

    def rest(self) -> "Transaction":
        """Return what has to be sent after that, at once."""
        return structs.replace(self, made=(), late={})

    def behind(self) -> "Transaction":
        """Return what is better sent after the rest."""
        return Transaction(self.family, self.table, removed=self.late)

    @property
    def added_count(self) -> int:
        """How many elements are added."""
        return sum(len(elements) for elements in self.added.values())

    @property
    def removed_count(self) -> int:
        """How many elements are removed."""
        return sum(len(keys) for removed in (self.removed, self.late) for keys in removed.values())
