"""LastSyncs: what the last successful sync of each family reported, for ``knft status``."""

from collections.abc import Mapping

from msgspec import Struct

from knft.families import Family
from knft.model.names import NamespacedName, ServicePortName
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.foreign_changes import ForeignChangeSummary
from knft.sync.observer import SyncObserver
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
    """Keeps the last successful sync and the last foreign change of each family; any thread may read them."""

    def __init__(self, clock: Clock) -> None:
        """Start without syncs."""
        self._clock = clock
        self.syncs: dict[Family, LastSync] = {}
        self.table_changes: dict[Family, tuple[Timestamp, ForeignChangeSummary]] = {}

    def sync_succeeded(self, report: SyncReport, _state: ServiceState) -> None:
        """Keep what lasts of a report, and not the names of its changes: a first sync has those of all Services."""
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

    def table_changed(self, family: Family, changes: ForeignChangeSummary) -> None:
        """Keep the changes."""
        self.table_changes[family] = (self._clock(), changes)
