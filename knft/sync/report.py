"""SyncReport: the result of one sync of one family."""

from msgspec import Struct

from knft.decide.frontends import LosingClaim
from knft.families import Family
from knft.model.names import ServicePortName
from knft.sync.prepare import PreparedTransaction
from knft.track.endpoints import TriggerTimes


class SyncCounters:
    """Counts of what a sync has committed so far, in one or more transactions."""

    def __init__(self) -> None:
        """Start at zero."""
        self.service_ports = self.elements_added = self.elements_removed = self.chains_written = 0
        self.kernel_seconds = 0.0
        self.without_affinity: list[ServicePortName] = []
        self.table_created = False
        """Whether the sync created or replaced the table."""

    def add(self, prepared: PreparedTransaction, kernel_seconds: float, *, table_created: bool) -> None:
        """Count a committed transaction."""
        self.table_created |= table_created
        self.service_ports += sum(isinstance(owner, ServicePortName) for owner in prepared.desired)
        self.elements_added += prepared.transaction.added_count
        self.elements_removed += prepared.transaction.removed_count
        self.chains_written += len(prepared.transaction.prepared_chains) + len(prepared.transaction.chains)
        self.kernel_seconds += kernel_seconds
        self.without_affinity += prepared.without_affinity


class SyncReport(Struct, frozen=True):
    """Counts and times of a successful sync.

    ``is_full`` tells whether the sync read the table back and compared everything (a full sync; others are partial
    syncs). ``service_ports`` is how many were planned. ``seconds`` is the whole sync, ``kernel_seconds`` the part in
    libnftables and the kernel. ``changed_service_ports`` are those that changed since the last successful sync,
    including deleted ones. ``losing_claims`` are the claims to contested frontends that lose, ``without_affinity`` the
    Service ports of this sync that get no session affinity. ``trigger_times`` and ``conntrack_cleanup_required``
    include those of failed syncs since the last success.

    ``quarantined`` are the Service ports that the kernel refuses, with the reason. ``orphan_error`` is why it refuses
    to remove orphans, "" if none are left. ``refused_removals`` counts, since the last success, the refused removals of
    orphans, and the commits after which the kernel refused to delete some of the emptied chains. The next sync should
    start within ``next_sync_within`` seconds; None means no limit.
    """

    family: Family
    is_full: bool
    service_ports: int
    elements_added: int
    elements_removed: int
    chains_written: int
    seconds: float
    kernel_seconds: float
    changed_service_ports: frozenset[ServicePortName]
    losing_claims: tuple[LosingClaim, ...]
    without_affinity: tuple[ServicePortName, ...]
    quarantined: dict[ServicePortName, str]
    orphan_error: str
    refused_removals: int
    next_sync_within: float | None
    trigger_times: TriggerTimes
    conntrack_cleanup_required: bool

    def __str__(self) -> str:
        """Return the report as one line for a log."""
        kind = "full sync" if self.is_full else "partial sync"
        return (
            f"{self.family.value}: {kind} of {self.service_ports} Service ports in {self.seconds * 1e3:.1f} ms "
            f"({self.kernel_seconds * 1e3:.1f} ms in the kernel): {self.elements_added} elements added, "
            f"{self.elements_removed} removed, {self.chains_written} chains written"
        )
