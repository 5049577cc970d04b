"""One family's table in the kernel: read, declare, replace, commit, remove."""

import json

from knft.errors import KernelError
from knft.kernel.library import Commands
from knft.nft.codec.listing import Listing, parse_listing
from knft.nft.codec.tables import declarations_text, table_text, transaction_json
from knft.nft.objects import Family, Table
from knft.nft.transaction import Transaction

_NO_SUCH_TABLE = "No such file or directory"


class KernelTable:
    """The table ``name`` of ``family``. Every method raises KernelError, and then nothing has changed."""

    def __init__(self, library: Commands, family: Family, name: str) -> None:
        """Have ``library`` do the work: a LibraryProcess, unless it may crash with the caller."""
        self._library = library
        self._family = family
        self._name = name

    def read(self) -> Listing | None:
        """Return what the table holds, or None where there is none."""
        try:
            listed = self._library.run(f"list table {self._family} {self._name}")
        except KernelError as error:
            if _NO_SUCH_TABLE in error.detail:
                return None
            msg = f"listing the table {self._family} {self._name} failed: {error}"
            raise type(error)(msg, error.detail) from error
        try:
            return parse_listing(listed)
        except (ValueError, KeyError, TypeError) as error:
            msg = f"the table {self._family} {self._name} is not one that knft understands: {error!r}"
            raise KernelError(msg) from error

    def declare(self, table: Table) -> None:
        """Make the table with its containers; harmless where they are there already."""
        self._library.run(declarations_text(table))

    def replace(self, table: Table) -> None:
        """Put ``table`` in the place of the one that is there, in one transaction."""
        delete = f"add table {self._family} {self._name}\ndelete table {self._family} {self._name}\n"
        self._library.run(delete + table_text(table))

    def commit(self, transaction: Transaction) -> None:
        """Send a transaction; an empty one is not sent."""
        if not transaction.is_empty:
            self._library.run(transaction_json(transaction).decode())

    def remove(self) -> bool:
        """Delete the table; return whether there was one."""
        try:
            self._library.run(f"delete table {self._family} {self._name}")
        except KernelError as error:
            if _NO_SUCH_TABLE in error.detail:
                return False
            raise
        return True


def table_names(library: Commands) -> frozenset[tuple[str, str]]:
    """Return family and name of every table, nothing of what is in them; raise KernelError where that is refused."""
    objects = json.loads(library.run("list tables") or "{}").get("nftables", [])
    return frozenset((item["table"]["family"], item["table"]["name"]) for item in objects if "table" in item)
