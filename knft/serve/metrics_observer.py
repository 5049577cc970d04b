"""Updates the metrics of syncs from their reports (docs/behaviour/metrics.md)."""

import logging
from collections.abc import Collection

from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.plan import TrafficAction
from knft.serve.metrics import Metrics, ScrapeValues
from knft.serve.service_health import ServiceHealth
from knft.serve.timestamp import Clock
from knft.sync.daemon import Daemon
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from knft.track.endpoints import TriggerTimes

latency_log = logging.getLogger("knft.latency")
"""Gets one line for each sync; kube-proxy logs each change (docs/behaviour/tracking.md#programming-latency)."""


class NoLocalEndpoints:
    """The Service ports of one family that drop traffic: their policy is Local and no endpoint is on this node."""

    def __init__(self) -> None:
        """Start with none."""
        self.internal: set[ServicePortName] = set()
        self.external: set[ServicePortName] = set()

    def update(self, changed: Collection[ServicePortName], state: ServiceState) -> None:
        """Update the changed Service ports; skip the plan of those without policy Local, which are most."""
        self.internal.difference_update(changed)
        self.external.difference_update(changed)
        for name in changed:
            port = state.service_port(name)
            if port is None or not (port.internal_policy_local or port.external_policy_local):
                continue
            plan = state.plan(name)
            if plan is not None and plan.internal is TrafficAction.DROP:
                self.internal.add(name)
            if plan is not None and plan.external is TrafficAction.DROP:
                self.external.add(name)


class MetricsObserver(SyncObserver):
    """Updates the metrics of syncs."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """Update ``metrics``."""
        self._metrics = metrics.syncs
        self._clock = clock
        self._no_local = {family: NoLocalEndpoints() for family in Family}

    def loop_started(self, family: Family) -> None:
        """Record that the first sync is queued, since ``sync_queued`` is not called for it."""
        self.sync_queued(family)

    def sync_queued(self, family: Family) -> None:
        """Record that a sync is queued."""
        self._metrics.last_queued(family.value).set(self._clock().unix_seconds)

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Record a sync that succeeded."""
        now, metrics, family = self._clock().unix_seconds, self._metrics, report.family.value
        metrics.last_success(family).set(now)
        metrics.duration(family).observe(report.seconds)
        duration_by_kind = metrics.full_duration if report.is_full else metrics.partial_duration
        duration_by_kind(family).observe(report.seconds)
        metrics.kernel_duration(family).observe(report.kernel_seconds)
        self._observe_latency(report.trigger_times, family, now)
        if report.refused_removals:
            metrics.cleanup_failures(family).inc(report.refused_removals)
        counters = (
            (metrics.elements(family, "add"), report.elements_added),
            (metrics.elements(family, "remove"), report.elements_removed),
            (metrics.chains_written(family), report.chains_written),
            (metrics.foreign_objects_removed(family), len(report.repair.removed)),
        )
        for counter, count in counters:
            if count:
                counter.inc(count)
        metrics.quarantined(family).set(len(report.quarantined))
        metrics.too_large(family).set(len(report.too_large))
        metrics.contested(family).set(report.losing_claim_count)
        metrics.removal_refused(family).set(bool(report.orphan_error))
        metrics.repair_failed(family).set(bool(report.repair.error))
        self._set_no_local_endpoints(report, state)

    def _observe_latency(self, times: TriggerTimes, family: str, now: float) -> None:
        latencies = [now - trigger.timestamp() for triggers in times.values() for trigger in triggers]
        for seconds in latencies:
            self._metrics.programming_latency(family).observe(seconds)
        if latencies:
            latency_log.debug(
                "%s: programmed %d endpoint changes; latency: newest change %.3f s, oldest change %.3f s",
                family, len(latencies), min(latencies), max(latencies),
            )  # fmt: skip

    def _set_no_local_endpoints(self, report: SyncReport, state: ServiceState) -> None:
        counts, gauge = self._no_local[report.family], self._metrics.no_local_endpoints
        counts.update(report.changed_service_ports, state)
        gauge(report.family.value, "internal").set(len(counts.internal))
        gauge(report.family.value, "external").set(len(counts.external))

    def sync_failed(self, family: Family, seconds: float, _error: str) -> None:
        """Record a sync that failed; it counts as a full sync, since knft reads the table back before it gives up."""
        self._metrics.sync_failures(family.value).inc()
        self._metrics.duration(family.value).observe(seconds)
        self._metrics.full_duration(family.value).observe(seconds)

    def table_left(self, family: Family) -> None:
        """Reset what alerts of syncs depend on: no sync is queued, and another process is responsible for the rules."""
        metrics = self._metrics
        gauges = (metrics.last_queued, metrics.quarantined, metrics.removal_refused, metrics.repair_failed)
        for gauge in gauges:
            gauge(family.value).set(0)


def read_scrape_values(
    daemon: Daemon, service_health: ServiceHealth, libnftables_starts: int, dropped_log_lines: int
) -> ScrapeValues:
    """Return the current values of the counters that other objects keep."""
    tracked = [state.tracker_counts() for state in daemon.states.values()]
    return ScrapeValues(
        service_changes=sum(each.service_changes for each in tracked),
        services_pending=max(each.services_pending for each in tracked),
        endpoint_changes=sum(each.endpoint_changes for each in tracked),
        endpoint_changes_pending=max(each.endpoint_changes_pending for each in tracked),
        foreign_changes={family: daemon.foreign_changes.counts[family] for family in daemon.states},
        check_delays=daemon.foreign_changes.check_delays(),
        left_tables={family: int(daemon.foreign_changes.is_left(family)) for family in daemon.states},
        audit_differences={family: daemon.audit_differences[family] for family in daemon.states},
        service_ports={family: state.service_port_count() for family, state in daemon.states.items()},
        hashed_service_ports=daemon.hashed_service_port_counts(),
        health_check_services={family: servers.service_count for family, servers in service_health.servers.items()},
        listen_failures={family: servers.listen_failures for family, servers in service_health.servers.items()},
        libnftables_starts=libnftables_starts,
        dropped_log_lines=dropped_log_lines,
    )
