"""The proxy's own health checks ``/livez``, ``/healthz`` and ``/readyz`` (docs/behaviour/health.md#proxy).

A family is healthy unless a change has been pending for longer than the timeout. For ``/livez`` it is also healthy
while a long sync makes progress: a restart would only begin the same work again. kube-proxy's ``/healthz`` succeeds
before the first sync, so ``/readyz`` is knft's own: a rolling update must not continue before the rules are in force.
"""

import threading
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from knft.families import Family
from knft.serve.http_message import JSON, Response
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

_ZERO_TIME = "0001-01-01T00:00:00Z"
"""Go's zero time, which kube-proxy reports before the first sync."""


class FamilyHealth(Struct, frozen=True):
    """Health of one family: the time of its last sync, and whether no change has been pending for too long."""

    last_updated: Timestamp
    is_healthy: bool


class ProxyHealth(SyncObserver):
    """Observes syncs and answers the proxy's health checks; thread-safe."""

    def __init__(self, sync_period: float, clock: Clock) -> None:
        """Report unhealthy when a change has been pending for two ``sync_period`` (seconds)."""
        self._timeout = 2 * sync_period
        self._clock = clock
        self._lock = threading.Lock()
        self._last_updated: dict[Family, Timestamp] = {}
        self._pending_since: dict[Family, Timestamp] = {}
        """When the oldest change that is not synced yet was queued."""
        self._running: set[Family] = set()
        """The families that are being synced."""
        self._failed: set[Family] = set()
        """The families whose last sync failed."""
        self._synced: set[Family] = set()
        """The families that were synced once, or whose table is left to another process."""
        self._progressed_at = clock()
        """When a sync began, or last got an answer from the kernel."""

    def loop_started(self, family: Family) -> None:
        """Count as up to date: the first sync is pending only from its failure on."""
        self._record_update(family)

    def sync_queued(self, family: Family) -> None:
        """Record that a change is pending; keep the time of an older one."""
        now = self._clock()
        with self._lock:
            self._pending_since.setdefault(family, now)

    def sync_started(self, family: Family) -> None:
        """Record that a family is being synced."""
        now = self._clock()
        with self._lock:
            self._running.add(family)
            self._progressed_at = now

    def sync_progressed(self) -> None:
        """Record that the sync that is running has got an answer from the kernel; from any thread."""
        now = self._clock()
        with self._lock:
            self._progressed_at = now

    def sync_succeeded(self, report: SyncReport, _state: ServiceState) -> None:
        """Record that nothing is pending."""
        self._record_update(report.family, is_synced=True)

    def sync_failed(self, family: Family, _seconds: float) -> None:
        """Keep changes pending; if nothing was queued, count the failed sync as pending from now."""
        with self._lock:
            self._running.discard(family)
            self._failed.add(family)
        self.sync_queued(family)

    def table_left(self, family: Family) -> None:
        """Count as up to date: another process programs the family, and restarting this one would not help."""
        self._record_update(family, is_synced=True)

    def _record_update(self, family: Family, *, is_synced: bool = False) -> None:
        now = self._clock()
        with self._lock:
            if is_synced:
                self._synced.add(family)
            self._last_updated[family] = now
            self._pending_since.pop(family, None)
            self._running.discard(family)
            self._failed.discard(family)

    def families(self, *, tolerates_progress: bool = False) -> dict[Family, FamilyHealth]:
        """Return the health of the families whose loop has started.

        With ``tolerates_progress``, a family is also healthy while a sync, of any family, makes progress.
        """
        monotonic = self._clock().monotonic
        with self._lock:
            return {
                family: FamilyHealth(
                    updated,
                    self._is_in_time(family, monotonic) or (tolerates_progress and self._progresses(family, monotonic)),
                )
                for family, updated in self._last_updated.items()
            }

    def _progresses(self, family: Family, monotonic: float) -> bool:
        """Tell whether a sync makes progress; False after a failed sync of the family, which may fail every time."""
        recently = monotonic - self._progressed_at.monotonic < self._timeout
        return bool(self._running) and family not in self._failed and recently

    def _is_in_time(self, family: Family, monotonic: float) -> bool:
        pending_since = self._pending_since.get(family)
        return pending_since is None or monotonic - pending_since.monotonic < self._timeout

    def pending_seconds(self, family: Family) -> float | None:
        """Return for how long the oldest change of a family has been pending, None if none is."""
        monotonic = self._clock().monotonic
        with self._lock:
            pending_since = self._pending_since.get(family)
        return max(0.0, monotonic - pending_since.monotonic) if pending_since is not None else None

    def is_healthy(self) -> bool:
        """Return whether every family is healthy."""
        return all(family.is_healthy for family in self.families().values())

    def is_alive(self) -> bool:
        """Return whether ``/livez`` succeeds."""
        return all(family.is_healthy for family in self.families(tolerates_progress=True).values())

    def livez(self) -> Response:
        """Return the response of ``/livez``: the health of this process alone."""
        return self._response(self.families(tolerates_progress=True), {}, node_eligible=True)

    def healthz(self, *, node_eligible: bool) -> Response:
        """Return the response of ``/healthz``: whether load balancers should send traffic to this node."""
        return self._response(self.families(), {"nodeEligible": node_eligible}, node_eligible=node_eligible)

    def readyz(self) -> Response:
        """Return the response of ``/readyz``: whether each family was synced since the start, and is up to date."""
        problem = self.readiness_problem()
        return Response(HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK, (problem or "ok").encode())

    def readiness_problem(self) -> str:
        """Return why ``/readyz`` fails, "" if it succeeds."""
        families = self.families()
        with self._lock:
            waiting = sorted(family.value for family in families if family not in self._synced)
        late = sorted(family.value for family, health in families.items() if not health.is_healthy)
        if not families:
            return "waiting for the Services and endpoints of the cluster"
        if waiting:
            return f"waiting for the first sync of {' and '.join(waiting)}"
        return f"a change of {' and '.join(late)} is not in force" if late else ""

    def _response(
        self, families: dict[Family, FamilyHealth], node_fields: dict[str, bool], *, node_eligible: bool
    ) -> Response:
        now = self._clock()
        healthy = all(family.is_healthy for family in families.values())
        succeeded = healthy and node_eligible
        newest = max(
            (family.last_updated for family in families.values()), key=lambda time: time.wall_ns, default=_ZERO_TIME
        )
        body: dict[str, Any] = {
            "lastUpdated": str(now if succeeded else newest),
            "currentTime": str(now),
            **node_fields,
            "healthy": healthy,
        }
        if families:
            body["status"] = {
                family.value: {"lastUpdated": str(health.last_updated), "healthy": health.is_healthy}
                for family, health in sorted(families.items(), key=lambda item: item[0].value)
            }
        status = HTTPStatus.OK if succeeded else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, msgspec.json.encode(body), JSON)
