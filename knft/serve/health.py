"""ProxyHealth: whether syncs keep up with the cluster, as the probes tell it (behaviour.md G.1).

A family is healthy unless a change has waited for longer than the timeout to be in force.
"""

import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from knft.model.names import Family
from knft.serve.message import JSON, Response
from knft.serve.moment import Clock, Moment
from knft.sync.observer import Observer
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

GOING_AWAY = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that the cluster autoscaler is about to remove: nobody is to send new connections there."""

_NEVER = "0001-01-01T00:00:00Z"


class FamilyHealth(Struct, frozen=True):
    """One family: when a sync succeeded last, and whether no change has waited for too long since."""

    last_updated: Moment
    healthy: bool


class ProxyHealth(Observer):
    """Hears of syncs, as an Observer, and says how they do; from any thread."""

    def __init__(self, sync_period: float, clock: Clock) -> None:
        """Count as unhealthy what has been late for two ``sync_period`` (seconds)."""
        self._timeout = 2 * sync_period
        self._clock = clock
        self._lock = threading.Lock()
        self._updated: dict[Family, Moment] = {}
        self._pending: dict[Family, Moment] = {}
        """Since when something has waited to be synced."""

    def looping(self, family: Family) -> None:
        """Begin: nothing is late so far."""
        self._update(family)

    def queued(self, family: Family) -> None:
        """Note that a change waits, unless one does already."""
        moment = self._clock()
        with self._lock:
            self._pending.setdefault(family, moment)

    def synced(self, report: SyncReport, _state: ServiceState) -> None:
        """Note that nothing waits any more."""
        self._update(report.family)

    def failed(self, family: Family, _seconds: float) -> None:
        """Leave waiting what waits; where nothing was queued, what failed waits from now on."""
        self.queued(family)

    def _update(self, family: Family) -> None:
        moment = self._clock()
        with self._lock:
            self._updated[family] = moment
            self._pending.pop(family, None)

    def families(self) -> dict[Family, FamilyHealth]:
        """Return the families whose loop has begun."""
        steady = self._clock().steady
        with self._lock:
            return {
                family: FamilyHealth(moment, self._is_in_time(family, steady))
                for family, moment in self._updated.items()
            }

    def _is_in_time(self, family: Family, steady: float) -> bool:
        pending = self._pending.get(family)
        return pending is None or steady - pending.steady < self._timeout

    def is_healthy(self) -> bool:
        """Whether every family is."""
        return all(family.healthy for family in self.families().values())

    def livez(self) -> Response:
        """Return the answer of ``/livez``, which asks for this process alone."""
        return self._response(self.families(), {}, serving=True)

    def healthz(self, *, node_eligible: bool) -> Response:
        """Return the answer of ``/healthz``: whether load balancers should use the node."""
        return self._response(self.families(), {"nodeEligible": node_eligible}, serving=node_eligible)

    def _response(self, families: dict[Family, FamilyHealth], node: dict[str, bool], *, serving: bool) -> Response:
        now = self._clock()
        healthy = all(family.healthy for family in families.values())
        succeeded = healthy and serving
        newest = max((family.last_updated for family in families.values()), key=lambda it: it.wall, default=_NEVER)
        body: dict[str, Any] = {
            "lastUpdated": str(now if succeeded else newest),
            "currentTime": str(now),
            **node,
            "healthy": healthy,
        }
        if families:
            body["status"] = {
                family.value: {"lastUpdated": str(found.last_updated), "healthy": found.healthy}
                for family, found in sorted(families.items(), key=lambda item: item[0].value)
            }
        status = HTTPStatus.OK if succeeded else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, msgspec.json.encode(body), JSON)


def is_eligible(*, exists: bool, deletion_timestamp: str | None, taint_keys: Iterable[str]) -> bool:
    """Tell whether a node is to get new connections: it exists, and nobody is about to remove it."""
    return exists and not deletion_timestamp and GOING_AWAY not in taint_keys
