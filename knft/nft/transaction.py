"""Transaction: the changes that one sync makes to one table."""

from collections.abc import Mapping

from msgspec import Struct, structs

from knft.families import NftFamily
from knft.nft.objects import Chain, Key, Value


class Transaction(Struct, frozen=True):
    """Changes of one table, in the order in which they are applied if they are sent as a whole.

    1. ``new_chains``: new chains that must have their rules before an element or a rule refers to them.
    2. ``chains``: created or rewritten; afterwards they contain exactly these rules.
    3. ``removed`` elements, then ``added`` ones. A verdict needs its chain, and an element's value is replaced by
       removing and adding its key.
    4. ``deferred_removals``: elements that packets in flight may still look up after the change.
    5. ``deleted_chains``, which nothing may refer to any more.

    knft can send the changes as a whole, or in up to three phases: the new-chains phase (1), the main phase (2, 3 and
    5), and then the cleanup phase (4). Each phase is a Transaction too, and the kernel applies each atomically. But a
    packet that is processed during a commit may read one map before it and another map after it. The phases reduce
    what such a packet can miss: a new verdict refers to a chain that already has its rules, and an element of
    ``deferred_removals`` stays until the main phase is in force. docs/design/transaction-phases.md lists what remains.
    """

    family: NftFamily
    table: str
    chains: tuple[Chain, ...] = ()
    new_chains: tuple[Chain, ...] = ()
    removed: Mapping[str, tuple[Key, ...]] = {}
    added: Mapping[str, Mapping[Key, Value]] = {}
    deferred_removals: Mapping[str, tuple[Key, ...]] = {}
    deleted_chains: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the transaction changes nothing."""
        return not (
            self.new_chains
            or self.chains
            or self.removed
            or self.added
            or self.deferred_removals
            or self.deleted_chains
        )

    def new_chains_phase(self) -> "Transaction":
        """Return the first phase: new chains, which no packet can reach yet."""
        return Transaction(self.family, self.table, new_chains=self.new_chains)

    def main_phase(self) -> "Transaction":
        """Return the second phase: everything but ``new_chains`` and ``deferred_removals``."""
        return structs.replace(self, new_chains=(), deferred_removals={})

    def cleanup_phase(self) -> "Transaction":
        """Return the last phase: the deferred removals."""
        return Transaction(self.family, self.table, removed=self.deferred_removals)

    @property
    def added_count(self) -> int:
        """The number of added elements."""
        return sum(len(elements) for elements in self.added.values())

    @property
    def removed_count(self) -> int:
        """The number of removed elements, including the deferred ones."""
        return sum(len(keys) for removed in (self.removed, self.deferred_removals) for keys in removed.values())
