"""TableRepair: deletes foreign objects from one family's table, and reads the table back after a repair."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from knft.config import Config
from knft.errors import KernelError, UnavailableError
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.nft.objects import NamedObject
from knft.render import layout
from knft.render.names import TABLE
from knft.sync.foreign_objects import ForeignObjects, describe, find_foreign_objects, unused_objects
from knft.sync.quarantine import RetryState, bisect
from knft.sync.table_interface import TableInterface
from knft.sync.table_snapshot import up_to_date_chains
from knft.sync.table_writer import TableWriter

_Value = TypeVar("_Value")


class RepairReport(Struct, frozen=True):
    """The result of reading the table back.

    ``repaired`` means that the table was read back after a repair and found right; ``removed`` are the foreign objects
    that are gone since, and ``removed_unused`` those that knft itself has created, with other options: their removal is
    not a repair. ``error`` tells what is still wrong with the table since the last repair, "" if nothing is.
    ``changed_again`` means that another program has changed the table, which the next sync therefore reads back.
    """

    repaired: bool = False
    removed: frozenset[NamedObject] = frozenset()
    removed_unused: frozenset[NamedObject] = frozenset()
    error: str = ""
    changed_again: bool = False


class TableRepair:
    """Deletes foreign objects; after that, and after every foreign change, it compares the table with what is expected.

    If they differ, the repair is retried with exponential backoff.
    """

    def __init__(self, family: Family, config: Config, table: TableInterface, writer: TableWriter) -> None:
        """``writer`` is the only other user of ``table``."""
        self._family = family
        self._config = config
        self._table = table
        self._table_name = f"table {family.nft} {TABLE}"
        self._writer = writer
        self._found = ForeignObjects()
        """The foreign objects that this sync found."""
        self._unconfirmed: frozenset[NamedObject] = frozenset()
        """The foreign objects that were found since the table was last read back."""
        self._unused: frozenset[NamedObject] = frozenset()
        """Those of them that knft has created with other options."""
        self._refusals: dict[NamedObject, KernelError] = {}
        self._must_verify = False
        self._digests_before: dict[str, str] = {}
        """The digests of the chains' rules, as this sync found them."""
        self._retry: RetryState | None = None

    @property
    def retry_at(self) -> float | None:
        """When the next attempt is due; None if the table was right when it was last read back."""
        return self._retry.retry_at if self._retry is not None else None

    @property
    def error(self) -> str:
        """What is wrong with the table, "" if nothing is known to be."""
        return self._retry.reason if self._retry is not None else ""

    def is_due(self, now: float) -> bool:
        """Tell whether the next attempt is due; ``now`` is in seconds."""
        return self._retry is not None and self._retry.retry_at <= now

    def require_verification(self) -> None:
        """Have the table read back after this sync: another program has changed it."""
        self._must_verify = True

    def read_without_base_chains(self) -> TableListing | None:
        """Return the table's contents after foreign base chains were deleted; None if there is no table.

        Foreign sets that crash libnftables are deleted too.
        """
        try:
            listing = self._table.read()
        except UnavailableError:
            kept = layout.container_names(self._family, self._config)
            if not self._table.delete_newer_sets(kept):
                raise
            listing = self._table.read()
        return self._delete_base_chains(listing) if listing is not None else None

    def _delete_base_chains(self, listing: TableListing) -> TableListing:
        """Delete foreign base chains, and return the listing without them.

        Such a chain may drop all traffic, so it is deleted before anything else is sent. But if knft's own base chains
        are not all in place, the foreign ones may be those of another version of knft, which serve the traffic until
        this version's are: ``delete_remaining_objects`` then deletes them. If the kernel refuses a deletion, the
        returned listing requires the table's replacement.
        """
        self._found = find_foreign_objects(listing, self._family, self._config)
        self._unconfirmed |= self._found.all
        self._unused |= self._found.unhooked_objects & unused_objects(self._family, self._config)
        self._refusals, self._digests_before = {}, listing.rule_digests
        if not self._found.base_chains or not self._has_own_base_chains(listing):
            return listing
        refused = self._delete(self._found.base_chains)
        deleted = {chain.name for chain in self._found.base_chains} - {chain.name for chain in refused}
        self._found = structs.replace(self._found, base_chains=frozenset(refused))
        return structs.replace(
            listing,
            rule_counts=_without(listing.rule_counts, deleted),
            rule_digests=_without(listing.rule_digests, deleted),
            hooks=_without(listing.hooks, deleted),
            must_be_replaced=listing.must_be_replaced or bool(refused),
        )

    def _has_own_base_chains(self, listing: TableListing) -> bool:
        own = {chain.name for chain in layout.constant_chains(self._family, self._config) if chain.hook is not None}
        return own.issubset(up_to_date_chains(listing, self._family, self._config))

    def delete_remaining_objects(self) -> None:
        """Delete the remaining foreign objects that this sync found; knft's own rules and elements must be in force.

        The next ``verify`` reports those that remain. If elements that this sync did not remove lead to foreign chains,
        another version of knft made these, and they serve traffic until the elements are removed.
        """
        found, self._found = self._found, ForeignObjects()
        self._delete(found.base_chains)
        chains = {each.name for each in found.unhooked_objects if each.kind == "chain"}
        if chains and not chains.isdisjoint(self._writer.target_chains()):
            return
        for objects, emptied in found.deletion_steps():
            self._delete(objects, emptied)

    def record_replacement(self) -> None:
        """Record that all objects of the table were deleted with it."""
        self._found = ForeignObjects()

    def _delete(self, objects: Iterable[NamedObject], emptied: Sequence[str] = ()) -> dict[NamedObject, KernelError]:
        """Delete as many of the objects as possible, and return the others with the kernel's errors."""
        if emptied:
            self._empty(emptied)

        def delete(batch: Sequence[NamedObject]) -> None:
            self._table.delete(batch, [each.name for each in batch if each.kind == "chain"])

        refused = bisect(sorted(objects), delete)
        self._refusals |= refused
        return refused

    def _empty(self, chains: Sequence[str]) -> None:
        def empty(batch: Sequence[str]) -> None:
            self._table.delete((), batch)

        self._refusals |= {NamedObject("chain", name): error for name, error in bisect(chains, empty).items()}

    def verify(self, now: float, changed_again: Callable[[], bool]) -> RepairReport:
        """Read the table back if that is necessary, and report whether it is right; ``now`` is in seconds.

        If another program has ``changed_again`` the table, the next sync does this.
        """
        if changed_again():
            return RepairReport(error=self.error, changed_again=True)
        if not (self._must_verify or self._unconfirmed or self._retry is not None):
            return RepairReport(error=self.error)
        try:
            listing = self._table.read()
        except KernelError as error:
            return self._failed(RepairReport(error=f"{self._table_name} could not be read back: {error}"), now)
        report = self._compare(listing)
        if not report.error:
            self._must_verify, self._retry = False, None
            return report
        # The difference may be a change that was made just now, which the next sync repairs.
        if changed_again():
            return structs.replace(report, error=self.error, changed_again=True)
        return self._failed(report, now)

    def _compare(self, listing: TableListing | None) -> RepairReport:
        remaining = (
            find_foreign_objects(listing, self._family, self._config).all if listing is not None else frozenset()
        )
        removed, self._unconfirmed = self._unconfirmed - remaining, self._unconfirmed & remaining
        unused, self._unused = removed & self._unused, self._unused & remaining
        is_repair = self._must_verify or self._retry is not None or removed != unused
        differences = self._writer.differences(listing, self._digests_before)
        reasons = [f"{len(differences)} elements or chains"] if differences else []
        if remaining:
            refusals = [str(error) for each, error in self._refusals.items() if each in remaining]
            reasons.append(
                f"foreign objects remain: {describe(remaining)}{''.join(f' ({why})' for why in refusals[:1])}"
            )
        error = f"{self._table_name} differs from the expected rules: {'; '.join(reasons)}" if reasons else ""
        return RepairReport(is_repair and not reasons, removed - unused, unused, error)

    def _failed(self, report: RepairReport, now: float) -> RepairReport:
        first = RetryState(report.error, now, self._config.sync_period)
        self._retry = self._retry.after_refusal(report.error, now) if self._retry is not None else first
        return report


def _without(chains: dict[str, _Value], deleted: set[str]) -> dict[str, _Value]:
    return {name: value for name, value in chains.items() if name not in deleted}
