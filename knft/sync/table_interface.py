"""TableInterface: the operations on the kernel's table that a sync needs."""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import structs

from knft.nft.codec.listing import TableListing
from knft.nft.objects import Key, NamedObject, Table, Value
from knft.nft.transaction import Transaction


class TableInterface(Protocol):
    """One family's table in the kernel, or a substitute for it.

    Methods raise KernelError if the kernel refuses a request, which then has no effect. Its subclass UnavailableError
    means that the table cannot be used now. Then it is unknown whether the request had an effect, except for a
    TableOwnedError, which means that it had none.
    """

    def read(self) -> TableListing | None:
        """Return the contents of the table, or None if there is no table."""

    def dynamic_elements(self) -> dict[str, dict[Key, Value]]:
        """Return the elements that rules have added to dynamic sets, by set; none if there is no table."""

    def ensure_working(self) -> None:
        """Raise UnavailableError if libnftables crashes even on a harmless request."""

    def declare(self, table: Table) -> None:
        """Create the table and its containers, where missing."""

    def create(self, declared: Table, first: Transaction) -> None:
        """Create the table, which does not exist, its containers, and what ``first`` adds, in one transaction."""

    def replace(self, table: Table) -> None:
        """Replace the existing table with ``table``, in one transaction."""

    def commit(self, transaction: Transaction) -> None:
        """Send a transaction."""

    def wait_for_packets(self) -> None:
        """Wait until the kernel has finished the packets that it was processing at the last commit."""

    def delete(self, objects: Sequence[NamedObject], flushed_chains: Sequence[str] = ()) -> None:
        """Remove all rules of some chains, then delete ``objects``, in one transaction."""

    def delete_newer_sets(self, kept: Collection[str]) -> bool:
        """Delete the sets that a newer libnftables made, except those with the names ``kept``; tell if any is gone.

        They crash an older libnftables.
        """


class TransactionRecorder:
    """A TableInterface without a kernel, for rendering: records the transactions."""

    def __init__(self) -> None:
        """Start without a table."""
        self._declared: Table | None = None
        self.transactions: list[Transaction] = []

    def read(self) -> TableListing | None:
        """Return None: there is no table."""
        return None

    def dynamic_elements(self) -> dict[str, dict[Key, Value]]:
        """Return nothing: there is no table."""
        return {}

    def ensure_working(self) -> None:
        """Do nothing."""

    def declare(self, table: Table) -> None:
        """Record the declarations."""
        self._declared = table

    def create(self, declared: Table, first: Transaction) -> None:
        """Record the declarations and the transaction."""
        self.declare(declared)
        self.commit(first)

    def replace(self, table: Table) -> None:
        """Raise NotImplementedError: there is no table to replace."""
        raise NotImplementedError

    def commit(self, transaction: Transaction) -> None:
        """Record the transaction."""
        self.transactions.append(transaction)

    def wait_for_packets(self) -> None:
        """Return at once: there are no packets."""

    def delete(self, objects: Sequence[NamedObject], flushed_chains: Sequence[str] = ()) -> None:
        """Raise NotImplementedError: there is no table with foreign objects."""
        raise NotImplementedError

    def delete_newer_sets(self, kept: Collection[str]) -> bool:  # noqa: ARG002 - of the interface
        """Return False: there is no such set."""
        return False

    def first_sync(self) -> tuple[Table, Transaction]:
        """Return the declarations and the transaction of the only sync so far, as a whole even if sent in phases.

        Raises LookupError if there was none.
        """
        if self._declared is None or not self.transactions:
            msg = "nothing was synced"
            raise LookupError(msg)
        added: dict[str, dict[Key, Value]] = {}
        for phase in self.transactions:
            for name, elements in phase.added.items():
                added.setdefault(name, {}).update(elements)
        new_chains = tuple(chain for phase in self.transactions for chain in phase.new_chains)
        return self._declared, structs.replace(self.transactions[-1], new_chains=new_chains, added=added)
