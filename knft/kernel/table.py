"""One family's table in the kernel: read, declare, replace, commit, remove."""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import structs

from knft.errors import KernelError, LibraryDiedError, TableOwnedError, UnavailableError
from knft.kernel.libnftables import Commands
from knft.kernel.newer_sets import explained
from knft.kernel.ownership import Ownership
from knft.kernel.probe import require_life
from knft.kernel.tables import flags_of
from knft.nft.codec.listing import Listing, parse_listing
from knft.nft.codec.tables import declarations_text, table_text, transaction_json
from knft.nft.objects import Family, Table
from knft.nft.transaction import Transaction

_NO_SUCH_TABLE = "No such file or directory"
_NOT_PERMITTED = "Operation not permitted"


class KernelTable:
    """The table ``name`` of ``family``.

    Every method raises KernelError, and then nothing has changed; or UnavailableError, where nobody knows whether it
    has.
    """

    def __init__(self, library: Commands, family: Family, name: str, ownership: Ownership | None = None) -> None:
        """Have ``library`` do the work: a LibraryProcess, unless it may crash with the caller.

        With an ``ownership`` that is possible, the table is made so that only this process may change it.
        """
        self._library = library
        self._family = family
        self._name = name
        self._ownership = ownership if ownership is not None and ownership.possible else None

    def read(self) -> Listing | None:
        """Return what the table holds, or None where there is none."""
        flags = flags_of(self._family, self._name)
        try:
            listed = self._library.run(f"list table {self._family} {self._name}")
        except LibraryDiedError:
            self.ensure_working()
            raise
        except KernelError as error:
            if _NO_SUCH_TABLE in error.detail:
                return None
            msg = f"listing the table {self._family} {self._name} failed: {error}"
            raise type(error)(msg, error.detail) from error
        try:
            listing = parse_listing(listed)
        except (ValueError, KeyError, TypeError) as error:
            if "owner" in flags and self._ownership is None:
                raise self._owned_by_another() from error  # libnftables 1.0.6 cuts the listing of such a table short.
            msg = f"the table {self._family} {self._name} is not one that knft understands: {error!r}"
            raise KernelError(msg) from error
        not_owned = self._ownership is not None and "persist" not in flags
        return structs.replace(listing, unsuitable=not_owned or "dormant" in flags)

    def ensure_working(self) -> None:
        """Return where the library only dies of some things; raise UnavailableError where it dies of anything."""
        try:
            require_life(self._library, self._family)
        except LibraryDiedError as error:
            raise explained(error) from error

    def declare(self, table: Table) -> None:
        """Make the table with its containers; harmless where they are there already."""
        with self._owning():
            self._library.run(declarations_text(self._owned(table)))

    def replace(self, table: Table) -> None:
        """Put ``table`` in the place of the one that is there, in one transaction."""
        with self._owning():
            # One that has an owner cannot be added again without saying so, and one that has none not with.
            owned = "owner" in flags_of(self._family, self._name)
            flags = "{\nflags owner,persist\n}" if owned else ""
            where = f"{self._family} {self._name}"
            self._library.run(f"add table {where} {flags}\ndelete table {where}\n{table_text(self._owned(table))}")

    def commit(self, transaction: Transaction) -> None:
        """Send a transaction; an empty one is not sent."""
        with self._owning():
            if not transaction.is_empty:
                self._library.run(transaction_json(transaction).decode())

    def remove(self) -> bool:
        """Delete the table; return whether there was one."""
        try:
            with self._owning():
                self._library.run(f"delete table {self._family} {self._name}")
        except KernelError as error:
            if _NO_SUCH_TABLE in error.detail:
                return False
            raise
        return True

    def _owned(self, table: Table) -> Table:
        return structs.replace(table, owned=self._ownership is not None)

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Take over before a change what a former process of the library left, and after it what this one leaves."""
        try:
            self._keep()
            yield
            self._keep_after()
        except TableOwnedError:
            raise
        except KernelError as error:
            if _NOT_PERMITTED in error.detail and "owner" in flags_of(self._family, self._name):
                raise self._owned_by_another() from error
            raise

    def _owned_by_another(self) -> TableOwnedError:
        return TableOwnedError(
            f"the table {self._family} {self._name} belongs to another process, which alone may change it: "
            "stop the other knft first"
        )

    def _keep_after(self) -> None:
        try:
            self._keep()
        except UnavailableError:
            raise
        except KernelError as error:
            msg = f"the change was made, but the table could not be taken over after it: {error}"
            raise UnavailableError(msg, error.detail) from error

    def _keep(self) -> None:
        if self._ownership is not None:
            self._ownership.keep()
