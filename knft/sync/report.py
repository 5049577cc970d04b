"""SyncReport: the result of one sync of one family."""

import heapq

from msgspec import Struct

from knft.decide.frontends import LosingClaim
from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.sync.change_origins import ChangeOrigins
from knft.sync.prepare import PreparedTransaction
from knft.sync.table_repair import RepairReport
from knft.track.endpoints import TriggerTimes

MAX_NAMES = 20
"""Most changed Service ports that the log names for one sync."""


class SyncCounters:
    """Counts of what a sync has committed so far, in one or more transactions."""

    def __init__(self) -> None:
        """Start at zero."""
        self.service_ports = self.elements_added = self.elements_removed = self.chains_written = 0
        self.kernel_seconds = 0.0
        self.table_created = False
        """Whether the sync created or replaced the table."""

    @property
    def has_changes(self) -> bool:
        """Whether the sync has changed the table."""
        return bool(self.table_created or self.elements_added or self.elements_removed or self.chains_written)

    def add(self, prepared: PreparedTransaction, kernel_seconds: float, *, table_created: bool) -> None:
        """Count a committed transaction."""
        self.table_created |= table_created
        self.service_ports += sum(isinstance(owner, ServicePortName) for owner in prepared.desired)
        self.service_ports += prepared.claimed_count
        self.elements_added += prepared.transaction.added_count
        self.elements_removed += prepared.transaction.removed_count
        self.chains_written += len(prepared.transaction.new_chains) + len(prepared.transaction.chains)
        self.kernel_seconds += kernel_seconds


class SyncReport(Struct, frozen=True):
    """Counts and times of a successful sync."""

    family: Family
    is_full: bool
    """Whether the sync read the table back and compared everything; other syncs are partial syncs."""
    service_ports: int
    """How many Service ports were planned."""
    elements_added: int
    elements_removed: int
    chains_written: int
    seconds: float
    """The duration of the whole sync."""
    kernel_seconds: float
    """The part of ``seconds`` that was spent in libnftables and the kernel."""
    changed_service_ports: frozenset[ServicePortName]
    """The Service ports whose changes are in force since this sync, including deleted ones."""
    losing_claim_count: int
    """How many claims are to frontends that another Service owns."""
    newly_losing_claims: tuple[LosingClaim, ...]
    """Those of them that did not lose at the last successful sync."""
    ended_losing_claims: tuple[LosingClaim, ...]
    """Claims that lost at an earlier sync and no longer do."""
    quarantined: dict[ServicePortName, str]
    """The Service ports that the kernel refuses, with the reason."""
    too_large: dict[NamespacedName, str]
    """The Services that are left out because they are too large, and why each is."""
    orphan_error: str
    """Why the kernel refuses to remove orphans (unclaimed contents); "" if none are left."""
    refused_removals: int
    """Refusals since the last success: removals of orphans, and commits after which the kernel refused to delete some
    of the emptied chains."""
    next_sync_within: float | None
    """Seconds within which the next sync should start; None for no limit."""
    trigger_times: TriggerTimes
    """When the changes that are in force happened in the cluster; includes those of failed syncs since the last
    success."""
    conntrack_cleanup_required: bool
    """Whether a changed Service has, or had, UDP endpoints; includes failed syncs since the last success."""
    is_complete: bool = True
    """Whether all changes are in force. If not, the next sync should follow at once."""
    repair: RepairReport = RepairReport()
    """The result of reading the table back after a repair."""
    committed: float = 0.0
    """When the kernel had the last change of rules, in seconds of the Proxier's clock: packets meet them since then."""
    origins: ChangeOrigins = ChangeOrigins()
    """Where the changes that are in force come from, if the state records that."""

    def changed_names(self) -> str:
        """Return the names of the first changed Service ports, for a log."""
        names = ", ".join(map(str, heapq.nsmallest(MAX_NAMES, self.changed_service_ports)))
        more = len(self.changed_service_ports) - MAX_NAMES
        return f"{names} and {more} more" if more > 0 else names

    def __str__(self) -> str:
        """Return the report as one line for a log."""
        kind = "full sync" if self.is_full else "partial sync"
        return (
            f"{self.family.value}: {kind} of {self.service_ports} Service ports in {self.seconds * 1e3:.1f} ms "
            f"({self.kernel_seconds * 1e3:.1f} ms in the kernel): {self.elements_added} elements added, "
            f"{self.elements_removed} removed, {self.chains_written} chains written"
        )
