"""SyncTotalsObserver: adds up syncs, and answers ``knft top`` with the sums and the connections of frontends."""

from typing import TYPE_CHECKING

from msgspec import structs

from knft.control.messages import Counters, FrontendCounters, SyncTotals
from knft.families import Family
from knft.serve import kernel_counters
from knft.serve.timestamp import Clock
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

if TYPE_CHECKING:
    from knft.serve.service_counters import ServiceCounters


class SyncTotalsObserver(SyncObserver):
    """The syncs of each family since the start; only the sync thread changes them."""

    def __init__(self, clock: Clock) -> None:
        """Start without syncs."""
        self._clock = clock
        self._totals = {family: SyncTotals() for family in Family}

    def sync_succeeded(self, report: SyncReport, _state: ServiceState) -> None:
        """Add a sync, and the latencies of its changes."""
        totals, now = self._totals[report.family], self._clock().unix_seconds
        totals.syncs += 1
        totals.seconds += report.seconds
        for triggers in report.trigger_times.values():
            totals.latencies += len(triggers)
            totals.latency_seconds += sum(now - trigger.timestamp() for trigger in triggers)

    def sync_failed(self, family: Family, seconds: float, _error: str) -> None:
        """Add a failed sync."""
        totals = self._totals[family]
        totals.syncs += 1
        totals.failures += 1
        totals.seconds += seconds

    def read(self, services: "ServiceCounters | None") -> Counters:
        """Return the totals, and the connections of frontends that have any; from any thread."""
        syncs = {family.value: structs.replace(totals) for family, totals in self._totals.items()}
        asked, interval = self._clock().monotonic, kernel_counters.READ_SECONDS
        if services is None or services.last_read is None:
            return Counters(asked, None, interval, services is not None, syncs)
        read = services.last_read.monotonic
        return Counters(asked, read, interval, is_counting=True, syncs=syncs, frontends=_frontends(services))


def _frontends(services: "ServiceCounters") -> tuple[FrontendCounters, ...]:
    return tuple(
        FrontendCounters(
            name.namespace,
            name.name,
            name.port,
            name.protocol,
            frontend.address or "",
            frontend.port,
            family.value,
            counted.new,
            counted.rejected + counted.dropped,
        )
        for family, name, frontend, counted in services.by_frontend()
        if counted.new
    )
