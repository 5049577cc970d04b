"""LastSyncs: the results of the last sync and the last audit of each family, for ``knft status``."""

from collections.abc import Mapping

from msgspec import Struct

from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.foreign_changes import ForeignChangeSummary
from knft.sync.observer import AuditResult, SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState


class LastSync(Struct, frozen=True):
    """A successful sync: its end, its duration in seconds, and the problems that last."""

    ended: Timestamp
    seconds: float
    is_full: bool
    quarantined: Mapping[ServicePortName, str]
    too_large: Mapping[NamespacedName, str]
    losing_claim_count: int
    orphan_error: str
    repair_error: str


class LastSyncs(SyncObserver):
    """Keeps the last successful sync, error, audit and foreign change of each family; any thread may read them."""

    def __init__(self, clock: Clock) -> None:
        """Start without syncs."""
        self._clock = clock
        self.syncs: dict[Family, LastSync] = {}
        self.errors: dict[Family, str] = {}
        """Why the last sync failed, for the families whose last sync did."""
        self.audits: dict[Family, tuple[Timestamp, AuditResult]] = {}
        self.table_changes: dict[Family, tuple[Timestamp, ForeignChangeSummary]] = {}

    def sync_succeeded(self, report: SyncReport, _state: ServiceState) -> None:
        """Keep what lasts of a report, and not the names of its changes: a first sync has those of all Services."""
        self.errors.pop(report.family, None)
        self.syncs[report.family] = LastSync(
            self._clock(),
            report.seconds,
            report.is_full,
            report.quarantined,
            report.too_large,
            report.losing_claim_count,
            report.orphan_error,
            report.repair.error,
        )

    def sync_failed(self, family: Family, _seconds: float, error: str) -> None:
        """Keep the error until a sync succeeds."""
        self.errors[family] = error

    def table_audited(self, family: Family, result: AuditResult) -> None:
        """Keep the result."""
        self.audits[family] = (self._clock(), result)

    def table_changed(self, family: Family, changes: ForeignChangeSummary) -> None:
        """Keep the changes."""
        self.table_changes[family] = (self._clock(), changes)
