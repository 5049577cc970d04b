"""Proxier: syncs one family, from changed objects to a committed transaction.

    ServiceState ──drain──▶ plan ──▶ render ──▶ diff ──▶ commit ──▶ record

After a failed commit the contents of the table are unknown: the next sync reads the table back and compares everything
(a full sync).
"""

import math
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct, structs

from knft.config import Config
from knft.delta.programmed import ProgrammedContents
from knft.errors import KernelError, LibraryDiedError, TableOwnedError, UnavailableError
from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.unknown import ANYTHING, NOTHING_UNKNOWN, UnknownObjects
from knft.nft.codec.listing import TableListing
from knft.nft.objects import Contents
from knft.sync.audit import TablePosition
from knft.sync.declarations import Declarations
from knft.sync.earlier_affinity import without_former_ids
from knft.sync.invalidation import Invalidation, PendingInvalidations
from knft.sync.prepare import MAX_RULES
from knft.sync.previous_contents import PreviousContents
from knft.sync.quarantine import Quarantine, RetryState, bisect
from knft.sync.removal_hold import RemovalHold
from knft.sync.report import SyncCounters, SyncReport
from knft.sync.state import PendingChanges, ServiceState
from knft.sync.table_interface import TableInterface
from knft.sync.table_repair import RepairReport, TableRepair
from knft.sync.table_snapshot import Owner, SpecialOwner, SyncScope, TableSnapshot, TableState, snapshot_from_listing
from knft.sync.table_writer import TableWriter

UNUSED_CHAINS_INTERVAL_SECONDS = 3600.0
MAX_UNUSED_CHAINS = 1 << 12
"""Shared chains for affinity timeouts that no Service port has are removed after this time, or once so many chains were
created."""


class _ChainRemoval(Struct, frozen=True):
    """When unused shared chains are removed next: the time in seconds, or when there are more chains."""

    due: float
    max_chains: int = MAX_UNUSED_CHAINS


class Proxier:
    """Keeps the table of one family equal to its ServiceState."""

    def __init__(
        self,
        family: Family,
        config: Config,
        state: ServiceState,
        table: TableInterface,
        clock: Callable[[], float],
    ) -> None:
        """``clock`` returns the host's monotonic time in seconds, which survives a restart of knft but not of the host.

        (New endpoint IDs depend on it, and must not be those that another process has used.)
        """
        self.family = family
        self.state = state
        self._config = config
        self._table = table
        self._clock = clock
        self._writer = TableWriter(config, state, table, clock)
        self._repair = TableRepair(family, config, table, self._writer)
        self._chain_removal = _ChainRemoval(clock() + UNUSED_CHAINS_INTERVAL_SECONDS)
        self._invalidations = PendingInvalidations()
        self._is_check_planned = False
        self._unreported_changes: PendingChanges | None = None
        self._postponed: tuple[ServicePortName, ...] = ()
        """Changed Service ports that the last sync left to the next one, because it wrote enough rules without them, in
        the order in which they were postponed."""
        self._quarantine = Quarantine(config.sync_period)
        self._last_known: dict[ServicePortName, Contents] = {}
        """The last known contents of quarantined Service ports."""
        self._orphan_retry: RetryState | None = None
        """Set while the kernel refuses to remove orphans (``SpecialOwner.UNCLAIMED``)."""
        self._removal_hold = RemovalHold()
        self._declarations = Declarations(family, config)
        self._counters = SyncCounters()
        self._removals_reported = 0
        """How many refused removals were in earlier reports."""

    def sync(self) -> SyncReport:
        """Bring the table up to date. Raises KernelError if that fails; the next sync is then a full one.

        If many rules change, the sync is not complete: the caller should call it again at once, so that changes that
        arrive meanwhile need not wait for all of these rules.

        If the kernel refuses only some Service ports, the others are in force, and the report names the quarantined
        ones.
        """
        started = self._clock()
        self._counters = SyncCounters()
        self._removal_hold.start_sync()
        try:
            changes = self.state.drain()
            reported = changes if self._unreported_changes is None else self._unreported_changes.merged_with(changes)
            self._unreported_changes = reported
            repair = self._sync_table(changes, started)
        except BaseException as error:
            self._writer.detach_programmed()
            if isinstance(error, LibraryDiedError):
                self._table.ensure_working()  # Raises an error with the reason if the library always dies.
            raise
        in_force, self._unreported_changes = reported.split(self._postponed)
        refused_before, self._removals_reported = self._removals_reported, self._writer.refused_removals
        return SyncReport(
            family=self.family,
            is_full=repair is not None,
            service_ports=self._counters.service_ports,
            elements_added=self._counters.elements_added,
            elements_removed=self._counters.elements_removed,
            chains_written=self._counters.chains_written,
            seconds=self._clock() - started,
            kernel_seconds=self._counters.kernel_seconds,
            changed_service_ports=in_force.service_ports,
            losing_claim_count=self.state.losing_claim_count(),
            newly_losing_claims=self.state.take_newly_losing_claims(),
            ended_losing_claims=self.state.take_ended_losing_claims(),
            quarantined=self._quarantine.reasons(),
            too_large=self.state.too_large(),
            orphan_error=self._orphan_retry.reason if self._orphan_retry is not None else "",
            refused_removals=self._removals_reported - refused_before,
            next_sync_within=self._next_sync_within(),
            trigger_times=in_force.trigger_times,
            conntrack_cleanup_required=in_force.conntrack_cleanup_required,
            is_complete=self.is_complete,
            repair=repair or RepairReport(error=self._repair.error),
            committed=max(started, self._writer.committed_at),
            origins=in_force.origins,
        )

    def _next_sync_within(self) -> float | None:
        """Return the seconds until a retry or a deletion is due, None if nothing is waiting."""
        now, programmed = self._clock(), self._writer.programmed
        times = (
            [waiting.deletable_at - now + 0.1 for waiting in programmed.emptied_chains.values()]
            if programmed is not None
            else []
        )
        times += [due for due in [self._quarantine.seconds_to_next_retry(now)] if due is not None]
        times += [self._orphan_retry.retry_at - now] if self._orphan_retry is not None else []
        times += [self._repair.retry_at - now] if self._repair.retry_at is not None else []
        return max(0.0, min(times)) if times else None

    def _sync_table(self, changes: PendingChanges, now: float) -> RepairReport | None:
        """Commit the changes, or everything that differs; return the result of a full sync, None of a partial one."""
        released = self._release_deleted_service_ports()
        self._quarantine.reset_delay(changes.service_ports)
        due = released or self._is_full_sync_due(now)
        programmed = self._writer.detach_programmed()
        if not due and programmed is not None and self._commit_changes(programmed, changes, now):
            return None
        repair = self._sync_full(PreviousContents(programmed or ProgrammedContents()), now)
        self._postponed = ()
        return repair

    @property
    def is_complete(self) -> bool:
        """Whether the last sync left no changes to the next one."""
        return not self._postponed

    def read_table(self) -> TableListing | None:
        """Return the table as it is in the kernel, None without one; raise KernelError if it cannot be read."""
        return self._table.read()

    def element_count(self) -> int | None:
        """Return how many elements the table has, None while a sync runs or after a failure; from any thread."""
        return self._writer.element_count()

    def hashed_service_port_count(self) -> int:
        """Return how many Service ports have tables of hashes; from any thread."""
        return self._writer.hashed_service_port_count()

    def invalidate(self, invalidation: Invalidation) -> None:
        """Make the next sync a full one; from any thread."""
        self._invalidations.add(invalidation)
        self._is_check_planned = False

    @property
    def is_full_sync_planned(self) -> bool:
        """Whether the next sync is a full one, because of ``invalidate``."""
        return bool(self._invalidations)

    def plan_check(self) -> None:
        """Record that another program has changed the table, and that ``invalidate`` follows later; from any thread."""
        self._is_check_planned = True

    def hold_removals(self, unknown: UnknownObjects = ANYTHING) -> None:
        """Remove nothing that is found in the kernel and may belong to ``unknown`` objects.

        Call it before the first sync, and later, from any thread, when other objects are unknown.
        """
        self._removal_hold.requested = unknown

    @property
    def unknown_objects(self) -> UnknownObjects:
        """The objects whose rules the next sync does not remove."""
        return self._removal_hold.requested

    def release_removals(self) -> None:
        """Have the next sync remove what no object requires; from any thread, after the last objects were passed."""
        self.hold_removals(NOTHING_UNKNOWN)

    def audit(
        self, table: TableInterface, report: Callable[[Collection[TablePosition]], None] = lambda _: None
    ) -> int | None:
        """Compare what was committed with the table as read through ``table``; from any thread but the sync thread.

        Returns the number of elements and chains that differ, which the next sync repairs; ``report`` gets them before
        that sync can begin. Returns None, without comparing, if a sync is running or failed. Raises KernelError if the
        table cannot be read.
        """
        differences = self._writer.audit(table)
        if differences is None:
            return None
        report(differences)
        if differences:
            self.invalidate(Invalidation(declarations=True))
        return len(differences)

    def _release_deleted_service_ports(self) -> bool:
        """Release Service ports that no longer exist from quarantine; return whether there were any."""
        deleted = frozenset(name for name in self._quarantine.names() if not self.state.has_service_port(name))
        self._release_from_quarantine(deleted)
        return bool(deleted)

    def _is_full_sync_due(self, now: float) -> bool:
        """Tell whether a partial sync is not enough: a retry is due, or the kernel's contents are uncertain."""
        orphan_retry_due = self._orphan_retry is not None and self._orphan_retry.retry_at <= now
        if self._repair.is_due(now):
            self.invalidate(Invalidation(declarations=True))
        return bool(
            self._quarantine.due(now) or orphan_retry_due or self._invalidations or self._removal_hold.was_released
        )

    def _commit_changes(self, programmed: ProgrammedContents[Owner], changes: PendingChanges, now: float) -> bool:
        """Commit the changes; return False if the kernel refuses them, so that a full sync is needed.

        Once the transaction has many rules, the other sticky Service ports are postponed, except the one that was
        postponed first: otherwise Service ports that change all the time could go before it forever.
        """
        changed = changes.service_ports.union(self._postponed) - self._quarantine.names()
        removal_due = self._is_chain_removal_due(programmed, now)
        if not (changed or changes.node is not None or removal_due or programmed.emptied_chains):
            return self._commit_nothing(programmed)
        longest_postponed = next((name for name in self._postponed if name in changed), None)
        node = {SpecialOwner.NODE} if changes.node is not None else set[SpecialOwner]()
        snapshot = TableSnapshot(
            programmed,
            TableState.READY,
            changed | node,
            self._writer.wide,
            SyncScope.PARTIAL,
            removes_unused_chains=removal_due,
            longest_postponed=longest_postponed,
        )
        try:
            postponed = self._commit(snapshot, PreviousContents(programmed), now, MAX_RULES)
        except KernelError:
            return False
        if removal_due and not postponed and not self._quarantine.names():
            limit = 2 * len(programmed.chains) + MAX_UNUSED_CHAINS
            self._chain_removal = _ChainRemoval(now + UNUSED_CHAINS_INTERVAL_SECONDS, limit)
        waiting = [name for name in self._postponed if name in postponed]
        self._postponed = (*waiting, *sorted(postponed.difference(waiting)))
        return True

    def _commit_nothing(self, programmed: ProgrammedContents[Owner]) -> bool:
        """Handle a sync without changes quickly: some are due to changes that do not affect rules."""
        try:
            self._writer.commit_nothing(programmed)
        except KernelError:
            return False
        self._postponed = ()
        return True

    def _is_chain_removal_due(self, programmed: ProgrammedContents[Owner], now: float) -> bool:
        """Tell whether unused shared chains are removed now: never while some elements may lead to them."""
        if self._quarantine.names() or self._removal_hold.unknown or not self._writer.orphans_removed:
            return False
        return now >= self._chain_removal.due or len(programmed.chains) > self._chain_removal.max_chains

    def _sync_full(self, previous: PreviousContents, now: float) -> RepairReport:
        """Read the table back and commit all differences; quarantine the Service ports that the kernel refuses."""
        invalidation, quarantined_before = self._invalidations.take_all(), self._quarantine.names()
        try:
            previous = self._commit_full(invalidation, previous, now)
        except BaseException:
            self._invalidations.add(invalidation)
            raise
        # If the table was created or replaced, the reason for the refusal may be gone: a foreign change, for example.
        retried = (
            sorted(quarantined_before & self._quarantine.names())
            if self._counters.table_created
            else self._quarantine.due(now)
        )
        self._commit_service_ports(retried, previous, now)
        if (retried or not self._writer.orphans_removed) and not self._removal_hold.unknown.anything:
            self._remove_orphans(now)
        else:
            self._orphan_retry = None
        if self._counters.table_created:
            self._repair.record_replacement()
        else:
            self._repair.delete_remaining_objects()
        if invalidation.declarations and self._counters.has_changes:
            self._repair.require_verification()
        return self._repair.verify(now, lambda: bool(self._invalidations or self._is_check_planned))

    def _commit_full(self, invalidation: Invalidation, previous: PreviousContents, now: float) -> PreviousContents:
        """Commit the differences to the table as read back; return ``previous`` with what was read."""
        try:
            snapshot, previous = self._read_table(invalidation, previous, now)
            self._commit(snapshot, previous, now)
        except KernelError:
            # The table may have changed since it was read, libnftables crashed, or a set has another type: read again.
            invalidation = invalidation.merged_with(Invalidation(declarations=True))
        else:
            return previous
        snapshot, previous = self._read_table(invalidation, previous, now)
        try:
            self._commit(snapshot, previous, now)
        except TableOwnedError:
            raise
        except KernelError as error:
            if isinstance(error, LibraryDiedError):
                self._table.ensure_working()
            refusal = error
            # Its traceback would keep all that was rendered in memory.
            refusal.__traceback__ = refusal.__context__ = None
        else:
            return previous
        # It may have been committed nevertheless: then elements have moved between sets and maps.
        snapshot, previous = self._read_table(invalidation, previous, now)
        self._commit_with_bisect(snapshot, refusal, previous, now)
        return previous

    def _read_table(
        self, invalidation: Invalidation, previous: PreviousContents, now: float
    ) -> tuple[TableSnapshot, PreviousContents]:
        """Read the table back; return it as a snapshot, and ``previous`` with it."""
        snapshot = self._read_snapshot(invalidation, now)
        if snapshot.listing is None:
            return snapshot, previous
        found = structs.replace(previous, found=snapshot.listing.contents, claimed=snapshot.programmed)
        return snapshot, found

    def _read_snapshot(self, invalidation: Invalidation, now: float) -> TableSnapshot:
        self._writer.has_unrecorded_endpoints = False
        quarantined = self._quarantine.names()
        names = [name for name in self.state.service_ports() if name not in quarantined]
        listing = self._repair.read_without_base_chains()
        snapshot_as_read = snapshot_from_listing(listing, self.family, self._config, names, now)
        snapshot = structs.replace(
            snapshot_as_read,
            wide=self._writer.current_wide_numbers(snapshot_as_read.wide),
            preserved=quarantined,
            last_known=Contents.merged(self._last_known.values()),
        )
        snapshot = self._removal_hold.applied_to(snapshot, self.state)
        if snapshot.table is not TableState.READY or self._declarations.are_in_force(
            snapshot, may_be_foreign=invalidation.declarations
        ):
            return snapshot
        try:
            self._declarations.declare(self._table, snapshot)
        except UnavailableError:
            raise
        except KernelError:
            return self._for_replacement(snapshot)  # A set or map has a name of knft's layout and another type.
        return snapshot

    def _for_replacement(self, snapshot: TableSnapshot) -> TableSnapshot:
        """Return the snapshot for a sync that replaces the table; raise KernelError while removals are held."""
        self._removal_hold.check_replacement()
        return snapshot.for_replacement()

    def _commit_with_bisect(
        self, snapshot: TableSnapshot, refusal: KernelError, previous: PreviousContents, now: float
    ) -> None:
        """Commit what all Service ports need, then the Service ports by bisection.

        Raises ``refusal`` if no Service port causes it.
        """
        names = sorted(owner for owner in snapshot.owners if isinstance(owner, ServicePortName))
        base = structs.replace(
            snapshot,
            owners=snapshot.owners - set(names),
            preserved=snapshot.preserved | set(names),
            scope=SyncScope.KEEP_UNCLAIMED,
        )
        try:
            self._commit(base, previous, now)
        except UnavailableError:
            raise
        except KernelError:
            # The kernel refuses the base chains and sets: a foreign change that only replacing the table repairs.
            try:
                self._commit(self._for_replacement(snapshot), previous, now)
            except KernelError:
                raise refusal from None
            return
        self._commit_service_ports(names, previous, now)

    def _commit_service_ports(self, names: Sequence[ServicePortName], previous: PreviousContents, now: float) -> None:
        """Commit these Service ports, and quarantine those that are refused even alone."""
        found_arrays = without_former_ids(previous.found)

        def commit(batch: Sequence[ServicePortName]) -> None:
            # The contents of those that were quarantined, or of all after a refusal, are not recorded as theirs.
            snapshot = structs.replace(self._partial_snapshot(frozenset(batch)), found_arrays=found_arrays)
            try:
                self._commit(snapshot, previous, now)
            except UnavailableError:
                self.invalidate(Invalidation())  # It may have been committed nevertheless.
                raise

        for name, error in bisect(names, commit).items():
            self._quarantine_service_port(name, str(error), previous, now)
        if self._writer.has_unrecorded_endpoints:
            # Those of quarantined Service ports; the next sync finds and removes them.
            self._writer.has_unrecorded_endpoints = False
            self.invalidate(Invalidation())

    def _remove_orphans(self, now: float) -> None:
        """Remove orphans (``SpecialOwner.UNCLAIMED``); if the kernel refuses that, retry with backoff."""
        cleanup = structs.replace(
            self._partial_snapshot(frozenset()),
            scope=SyncScope.UNCLAIMED_ONLY,
            preserved=self._quarantine.names(),
            last_known=Contents.merged((*self._last_known.values(), self._removal_hold.found)),
        )
        try:
            self._commit(cleanup, PreviousContents(ProgrammedContents()), now)
        except KernelError as error:
            if isinstance(error, UnavailableError):
                if not isinstance(error, LibraryDiedError):
                    raise
                self._table.ensure_working()
                self.invalidate(Invalidation())  # It may have been committed nevertheless.
            self._writer.refused_removals += 1
            first = RetryState(str(error), now, self._config.sync_period)
            self._orphan_retry = (
                self._orphan_retry.after_refusal(str(error), now) if self._orphan_retry is not None else first
            )
        else:
            self._orphan_retry = None

    def _partial_snapshot(self, names: frozenset[ServicePortName]) -> TableSnapshot:
        """Return the snapshot for a partial sync of only these Service ports."""
        if self._writer.programmed is None:
            msg = "nothing was committed before"
            raise RuntimeError(msg)
        return TableSnapshot(
            self._writer.programmed,
            TableState.READY,
            frozenset[Owner](names),
            self._writer.wide,
            SyncScope.PARTIAL,
        )

    def _quarantine_service_port(
        self, name: ServicePortName, reason: str, previous: PreviousContents, now: float
    ) -> None:
        if name not in self._quarantine:
            self._last_known[name] = previous.last_known(name)
        self._quarantine.add(name, reason, now)

    def _commit(
        self, snapshot: TableSnapshot, previous: PreviousContents, now: float, max_rules: float = math.inf
    ) -> frozenset[ServicePortName]:
        """Commit the owners of a snapshot; raise KernelError if the kernel refuses the transaction.

        Returns the Service ports that are postponed, because the transaction has ``max_rules`` rules without them.
        """
        prepared, seconds = self._writer.commit(snapshot, now, max_rules)
        self._counters.add(prepared, seconds, table_created=snapshot.table is not TableState.READY)
        self._removal_hold.record_commit()
        self._release_from_quarantine(snapshot.owners - prepared.render_errors.keys())
        for name, error in prepared.render_errors.items():
            self._quarantine_service_port(name, f"rendering failed, please report this: {error!r}", previous, now)
        return prepared.postponed

    def _release_from_quarantine(self, owners: Collection[Owner]) -> None:
        self._quarantine.release(owners)
        self._last_known = {name: last for name, last in self._last_known.items() if name in self._quarantine}
