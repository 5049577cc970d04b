"""What a sync needs of the kernel."""

from typing import Protocol

from knft.nft.codec.listing import TableListing
from knft.nft.objects import Table
from knft.nft.transaction import Transaction


class TablePort(Protocol):
    """One family's table.

    Every method raises KernelError where it is refused, and then nothing has changed; or UnavailableError, where nobody
    knows whether it has.
    """

    def read(self) -> TableListing | None:
        """Return what the table holds, or None where there is none."""

    def ensure_working(self) -> None:
        """Return where it only dies of some requests; raise UnavailableError where it dies of any."""

    def declare(self, table: Table) -> None:
        """Make the table with its containers."""

    def replace(self, table: Table) -> None:
        """Put ``table`` in the place of the one that is there, in one transaction."""

    def commit(self, transaction: Transaction) -> None:
        """Send a transaction."""


class Recorder:
    """A port without a kernel behind it, for rendering: it keeps what would be sent."""

    def __init__(self) -> None:
        """Start as a machine without the table."""
        self._declared: Table | None = None
        self.sent: list[Transaction] = []

    def read(self) -> TableListing | None:
        """Return that there is no table yet."""
        return None

    def ensure_working(self) -> None:
        """Do nothing, as nothing dies."""

    def declare(self, table: Table) -> None:
        """Keep the declarations."""
        self._declared = table

    def replace(self, table: Table) -> None:
        """Never asked for, where there is no table."""
        raise NotImplementedError

    def commit(self, transaction: Transaction) -> None:
        """Keep the transaction."""
        self.sent.append(transaction)

    def first_sync(self) -> tuple[Table, Transaction]:
        """Return what was declared, and what was sent next; there must have been a sync."""
        if self._declared is None or not self.sent:
            msg = "nothing was synced"
            raise LookupError(msg)
        return self._declared, self.sent[0]
