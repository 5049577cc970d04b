"""KernelTable: reads, declares, replaces, changes and deletes the table of one family in the kernel."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from msgspec import structs

from knft.errors import KernelError, LibraryDiedError, TableOwnedError, UnavailableError
from knft.families import Family
from knft.kernel.command_runner import CommandRunner
from knft.kernel.grace_period import wait_for_grace_period
from knft.kernel.newer_sets import delete_newer_sets, library_death_error
from knft.kernel.ownership import Ownership
from knft.kernel.probe import require_working_library
from knft.kernel.set_reader import SetReader
from knft.kernel.table_flags import flags_of
from knft.kernel.worker_messages import SetPart
from knft.nft.codec.cache_filter import CacheFilter
from knft.nft.codec.deletions import deletion_commands
from knft.nft.codec.listing import TableListing, parse_listing
from knft.nft.codec.tables import creation_commands, declarations_text, table_text, transaction_commands
from knft.nft.objects import Contents, Key, NamedObject, Table, Value
from knft.nft.transaction import Transaction

_NO_SUCH_TABLE = "No such file or directory"
_NOT_PERMITTED = "Operation not permitted"

READ_ATTEMPTS = 10
"""How often a set is read in all if it may have changed meanwhile."""


def list_without_elements(library: CommandRunner, family: str, name: str) -> str | None:
    """Return a table without elements of named sets as JSON, or None if it does not exist; raise KernelError."""
    where = f"{family} {name}"
    try:
        # For "list table", libnftables 1.0.6 reads all elements even if it lists none: 2 KB of memory each. For
        # "list ruleset", it reads no elements, but the rules of all tables. For both commands together, it reads
        # neither, and prints one document each.
        listed = library.run(f"list ruleset arp\nlist table {where}", terse=True)
    except LibraryDiedError:
        raise
    except KernelError as error:
        if _NO_SUCH_TABLE in error.detail:
            return None
        msg = f"cannot list table {where}: {error}"
        raise type(error)(msg, error.detail) from error
    return listed.strip().rpartition("\n")[2]


class KernelTable:
    """The table ``name`` of ``family``.

    If a method raises UnavailableError (but not TableOwnedError), it is unknown whether the change was committed. If it
    raises any other KernelError, nothing has changed.
    """

    def __init__(
        self,
        library: CommandRunner,
        family: Family,
        name: str,
        ownership: Ownership | None = None,
        cache_filter: CacheFilter | None = None,
    ) -> None:
        """Use ``library``, which should be a WorkerProcess unless a crash may end the caller.

        With ``cache_filter``, libnftables lists less before it changes elements.
        If ``ownership`` is given and supported, the table is created such that only this process may change it.
        """
        self._library = library
        self._family = family
        self._name = name
        self._ownership = ownership if ownership is not None and ownership.is_supported else None
        self._cache_filter = cache_filter
        self._has_filter_chain = False
        """Whether the filter's chain existed when the table was last read or written. In a first sync, it is created
        after many endpoints."""
        self._filter_was_refused = False
        """Whether commands were refused only with the filter, until a transaction writes chains."""

    def read(self) -> TableListing | None:
        """Return the table's contents, or None if the table does not exist."""
        flags = flags_of(self._family.nft, self._name)
        listing = self._list(flags)
        self._has_filter_chain = listing is not None and self._is_filter_chain(listing.rule_counts)
        self._filter_was_refused = False
        if listing is None:
            return None
        containers = sorted(listing.containers - listing.dynamic)
        unreadable = self._read_sets(containers, listing.contents)
        not_owned = self._ownership is not None and "persist" not in flags
        return structs.replace(
            listing, unreadable=frozenset(unreadable), must_be_replaced=not_owned or "dormant" in flags
        )

    def list_json(self) -> str | None:
        """Return the table without elements as JSON, or None if the table does not exist."""
        try:
            return list_without_elements(self._library, self._family.nft, self._name)
        except LibraryDiedError:
            self.ensure_working()
            raise

    def _list(self, flags: frozenset[str]) -> TableListing | None:
        """Return the table without elements, or None if the table does not exist."""
        listed = self.list_json()
        if listed is None:
            return None
        try:
            return parse_listing(listed, self._name)
        except (ValueError, KeyError, TypeError) as error:
            if "owner" in flags and self._ownership is None:
                raise self._owned_by_another() from error  # libnftables 1.0.6 truncates its listing.
            msg = f"cannot parse table {self._family.nft} {self._name}: {error!r}"
            raise KernelError(msg) from error

    def dynamic_elements(self) -> dict[str, dict[Key, Value]]:
        """Return the elements that rules have added to dynamic sets, by set; none if there is no table.

        Elements may be missing, because packets add elements meanwhile, without a transaction.
        """
        listing = self._list(flags_of(self._family.nft, self._name))
        names = sorted(listing.dynamic) if listing is not None else []
        found: dict[str, dict[Key, Value]] = {}

        def keep(reader: SetReader) -> None:
            found[reader.name] = dict(reader.timeouts())

        self._dump(names, keep)
        return found

    def _read_sets(self, names: Sequence[str], contents: Contents) -> set[str]:
        """Add all elements of sets and maps to ``contents``; return the names of those that knft cannot read.

        A dump is complete if no transaction was committed meanwhile, and no element was listed twice. Otherwise two
        equal dumps in a row are enough. So other programs' transactions on their own tables cannot prevent the reading,
        however frequent they are. Raises KernelError if a set keeps changing.
        """
        unreadable: set[str] = set()
        digests: dict[str, bytes] = {}
        """The digests of incomplete dumps, by set."""
        remaining = names

        def add(reader: SetReader) -> None:
            if reader.may_be_incomplete and reader.digest != digests.get(reader.name):
                digests[reader.name] = reader.digest
                return
            digests.pop(reader.name, None)
            if not reader.add_to(contents):
                unreadable.add(reader.name)

        for _ in range(READ_ATTEMPTS):
            self._dump(remaining, add)
            remaining = list(digests)
            if not remaining:
                return unreadable
        msg = f"cannot read the elements of {remaining[0]!r}: it changed during each of {READ_ATTEMPTS} attempts"
        raise KernelError(msg)

    def _dump(self, names: Sequence[str], on_end: Callable[[SetReader], None]) -> None:
        """Read sets and maps; pass the reader of each one to ``on_end`` as soon as it has all elements."""
        readers: dict[str, SetReader] = {}

        def receive(part: SetPart) -> None:
            if part.name not in readers:
                readers[part.name] = SetReader(part.name)
            readers[part.name].receive(part)
            if part.is_last:
                on_end(readers.pop(part.name))

        if names:
            self._library.dump_elements(self._family.number, self._name, names, receive)

    def ensure_working(self) -> None:
        """Raise UnavailableError if the library crashes even on a harmless command."""
        try:
            require_working_library(self._library, self._family)
        except LibraryDiedError as error:
            raise library_death_error(error) from error

    def declare(self, table: Table) -> None:
        """Create the table and its containers; existing ones are unchanged."""
        with self._keeping_ownership():
            self._library.run(declarations_text(self._with_ownership(table)))

    def create(self, declared: Table, first: Transaction) -> None:
        """Create the table, which does not exist, its containers, and what ``first`` adds, in one transaction."""
        with self._keeping_ownership():
            self._library.run(creation_commands(self._with_ownership(declared), first))
            self._filter_was_refused = False
            self._record_chains(first)

    def replace(self, table: Table) -> None:
        """Replace the existing table by ``table`` in one transaction."""
        with self._keeping_ownership():
            # "add table" fails unless its flags equal those of the existing table.
            owned = "owner" in flags_of(self._family.nft, self._name)
            flags = "{\nflags owner,persist\n}" if owned else ""
            where = f"{self._family.nft} {self._name}"
            self._library.run(
                f"add table {where} {flags}\ndelete table {where}\n{table_text(self._with_ownership(table))}"
            )
            self._filter_was_refused = False
            self._has_filter_chain = self._is_filter_chain([chain.name for chain in table.chains])

    def commit(self, transaction: Transaction) -> None:
        """Send a transaction, unless it is empty; with the cache filter, if it may have one."""
        with self._keeping_ownership():
            if transaction.is_empty:
                return
            filtered = self._filtered(transaction)
            if filtered is not None and self._is_committed(filtered):
                return
            self._library.run(transaction_commands(transaction))
            # Probably another program has deleted the chain of the filter.
            self._filter_was_refused = not transaction.writes_chains and (
                filtered is not None or self._filter_was_refused
            )
            self._record_chains(transaction)

    def wait_for_packets(self) -> None:
        """Wait until the kernel has finished the packets that it was processing: usually some milliseconds."""
        wait_for_grace_period()

    def _filtered(self, transaction: Transaction) -> str | None:
        """Return a transaction with the cache filter, or None if it must be sent without."""
        if self._cache_filter is None or not self._has_filter_chain or self._filter_was_refused:
            return None
        return self._cache_filter.commands(transaction)

    def _record_chains(self, transaction: Transaction) -> None:
        written = [chain.name for chain in (*transaction.new_chains, *transaction.chains)]
        self._has_filter_chain = self._has_filter_chain or self._is_filter_chain(written)

    def _is_filter_chain(self, chains: Collection[str]) -> bool:
        """Tell whether the chain of the filter is among some chains."""
        return self._cache_filter is not None and self._cache_filter.chain in chains

    def _is_committed(self, filtered: str) -> bool:
        """Run commands with the cache filter; return False if they are refused, maybe because of the filter."""
        try:
            self._library.run(filtered, terse=True)
        except UnavailableError:
            raise
        except KernelError:
            return False
        return True

    def delete(self, objects: Sequence[NamedObject], flushed_chains: Sequence[str] = ()) -> None:
        """Remove all rules of some chains, then delete ``objects``, in one transaction."""
        try:
            commands = deletion_commands(self._family.nft, self._name, objects, flushed_chains)
        except ValueError as error:
            raise KernelError(str(error)) from error
        with self._keeping_ownership():
            self._library.run(commands)

    def delete_newer_sets(self, kept: Collection[str]) -> bool:
        """Delete the sets that a newer libnftables made, except those with the names ``kept``; tell if any is gone."""
        return bool(delete_newer_sets(self._family, self._name, kept))

    def remove(self) -> bool:
        """Delete the table; return whether it existed."""
        try:
            with self._keeping_ownership():
                self._library.run(f"delete table {self._family.nft} {self._name}")
        except KernelError as error:
            if _NO_SUCH_TABLE in error.detail:
                return False
            raise
        return True

    def _with_ownership(self, table: Table) -> Table:
        return structs.replace(table, owned=self._ownership is not None)

    @contextmanager
    def _keeping_ownership(self) -> Iterator[None]:
        """Claim the table before a change, since a new worker may have started, and again after it."""
        try:
            self._claim()
            yield
            self._claim_after_change()
        except TableOwnedError:
            raise
        except KernelError as error:
            if _NOT_PERMITTED in error.detail and "owner" in flags_of(self._family.nft, self._name):
                raise self._owned_by_another() from error
            raise

    def _owned_by_another(self) -> TableOwnedError:
        return TableOwnedError(
            f"table {self._family.nft} {self._name} is owned by another process: stop the other knft instance first"
        )

    def _claim_after_change(self) -> None:
        try:
            self._claim()
        except UnavailableError:
            raise
        except KernelError as error:
            msg = f"the change was committed, but the table could not be claimed afterwards: {error}"
            raise UnavailableError(msg, error.detail) from error

    def _claim(self) -> None:
        if self._ownership is not None:
            self._ownership.claim()
