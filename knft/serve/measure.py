"""Measure: the Observer that keeps the metrics of syncs, from their reports alone (behaviour.md A.8, C.7, H)."""

import logging
from collections.abc import Collection

from knft.model.names import Family, ServicePortName
from knft.model.plan import Traffic
from knft.serve.metrics import Followed, Metrics
from knft.serve.moment import Clock
from knft.serve.service_health import ServiceHealth
from knft.sync.daemon import Daemon
from knft.sync.observer import Observer
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from knft.track.endpoints import TriggerTimes

latency_log = logging.getLogger("knft.latency")
"""What kube-proxy logs for each change of a slice (A.8) is a line for each sync here."""


class NoLocalEndpoints:
    """The Service ports of one family whose traffic is dropped: policy Local finds no endpoint here (C.6, 5)."""

    def __init__(self) -> None:
        """Start with none."""
        self.internal: set[ServicePortName] = set()
        self.external: set[ServicePortName] = set()

    def take(self, changed: Collection[ServicePortName], state: ServiceState) -> None:
        """Look at the Service ports that have changed; most have no policy Local, and then that is all."""
        self.internal.difference_update(changed)
        self.external.difference_update(changed)
        for name in changed:
            port = state.service_port(name)
            if port is None or not (port.internal_policy_local or port.external_policy_local):
                continue
            plan = state.plan(name)
            if plan is not None and plan.internal is Traffic.DROP:
                self.internal.add(name)
            if plan is not None and plan.external is Traffic.DROP:
                self.external.add(name)


class SyncMeasure(Observer):
    """Hears of syncs, as an Observer, and counts."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics.syncs
        self._clock = clock
        self._no_local = {family: NoLocalEndpoints() for family in Family}

    def looping(self, family: Family) -> None:
        """Note that the first sync is due."""
        self.queued(family)

    def queued(self, family: Family) -> None:
        """Note that a sync is due."""
        self._metrics.last_queued(family.value).set(self._clock().timestamp)

    def synced(self, report: SyncReport, state: ServiceState) -> None:
        """Count a sync."""
        now, metrics, family = self._clock().timestamp, self._metrics, report.family.value
        metrics.last(family).set(now)
        metrics.duration(family).observe(report.seconds)
        kind = metrics.full_duration if report.full else metrics.partial_duration
        kind(family).observe(report.seconds)
        metrics.kernel_duration(family).observe(report.kernel_seconds)
        self._time(report.trigger_times, family, now)
        if report.refused_cleanups:
            metrics.cleanup_failures(family).inc(report.refused_cleanups)
        metrics.elements(family, "add").inc(report.added)
        metrics.elements(family, "remove").inc(report.removed)
        metrics.chains(family).inc(report.chains)
        metrics.left_out(family).set(len(report.left_out))
        metrics.lost(family).set(len(report.lost))
        metrics.unswept(family).set(bool(report.unswept))
        self._count_no_local(report, state)

    def _time(self, times: TriggerTimes, family: str, now: float) -> None:
        latencies = [now - moment.timestamp() for moments in times.values() for moment in moments]
        for seconds in latencies:
            self._metrics.programming(family).observe(seconds)
        if latencies:
            latency_log.debug(
                "%s: %d changes of endpoints in force, the last after %.3f s, the first after %.3f s",
                family, len(latencies), min(latencies), max(latencies),
            )  # fmt: skip

    def _count_no_local(self, report: SyncReport, state: ServiceState) -> None:
        counts, gauge = self._no_local[report.family], self._metrics.no_local_endpoints
        counts.take(report.changed, state)
        gauge(report.family.value, "internal").set(len(counts.internal))
        gauge(report.family.value, "external").set(len(counts.external))

    def failed(self, family: Family, seconds: float) -> None:
        """Count a sync that failed; it has compared everything, as every one does before it gives up."""
        self._metrics.sync_failures(family.value).inc()
        self._metrics.duration(family.value).observe(seconds)
        self._metrics.full_duration(family.value).observe(seconds)


def follow(daemon: Daemon, service_health: ServiceHealth, libnftables_starts: int) -> Followed:
    """Return what the others count, as it is now."""
    tracked = [state.tracked() for state in daemon.states.values()]
    return Followed(
        service_changes=sum(each.service_changes for each in tracked),
        services_pending=max(each.services_pending for each in tracked),
        endpoint_changes=sum(each.endpoint_changes for each in tracked),
        slices_pending=max(each.slices_pending for each in tracked),
        foreign_changes={family: daemon.foreign_changes[family] for family in daemon.states},
        audit_differences={family: daemon.audit_differences[family] for family in daemon.states},
        service_ports={family: state.service_port_count() for family, state in daemon.states.items()},
        listeners={family: servers.listeners for family, servers in service_health.servers.items()},
        listen_failures={family: servers.failures for family, servers in service_health.servers.items()},
        libnftables_starts=libnftables_starts,
    )
