"""Observer: who wants to hear of syncs without having a part in them: health, metrics, conntrack, events."""

from knft.families import Family
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState


class SyncObserver:
    """Hears of each family's syncs, and does nothing of itself; what it raises is reported, and holds nobody up.

    It is called by the thread that syncs, but for ``queued``, which comes from any; each call must be quick.
    """

    def loop_started(self, family: Family) -> None:
        """Hear that the loop begins: nothing is late so far."""

    def sync_queued(self, family: Family) -> None:
        """Hear that something has changed and a sync is due."""

    def sync_started(self, family: Family) -> None:
        """Hear that a sync begins: until it has succeeded, what is in the kernel may be newer than what was heard."""

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Hear that a sync succeeded; ``state`` is what it has made of the cluster, to be read during the call."""

    def sync_failed(self, family: Family, seconds: float) -> None:
        """Hear that a sync failed after so many seconds; it is tried again."""
