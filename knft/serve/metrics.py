"""Defines all Prometheus metrics: those of kube-proxy (docs/behaviour/metrics.md) and knft's own.

Names, types, labels and buckets equal kube-proxy's. Most metrics are updated when something happens; the values that
trackers and the daemon keep are read at each scrape. docs/operations/metrics.md describes every metric.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from platform import python_version

from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import knft
from knft.families import Family

# kube-proxy has no _created series.
disable_created_metrics()  # type: ignore[no-untyped-call]

SYNC_BUCKETS = tuple(0.001 * 2**power for power in range(15))
PROGRAMMING_BUCKETS = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)

_FAMILY_LABEL = ("ip_family",)
_Kind = type[CounterMetricFamily | GaugeMetricFamily]


class ScrapeValues(Struct, frozen=True):
    """Values that other objects keep, read at a scrape.

    The first four come from the trackers (docs/behaviour/tracking.md). The pending ones are the larger number of both
    families, since most changes concern both. ``foreign_changes`` counts transactions of other programs in knft's
    tables, ``check_delays`` are the seconds between two checks of such changes, and ``left_tables`` is 1 for a
    table that is left to an older version of knft. ``audit_differences`` counts elements and chains that differed from
    what knft had committed, ``health_check_services`` Services whose health check port is open.
    """

    service_changes: int = 0
    services_pending: int = 0
    endpoint_changes: int = 0
    endpoint_changes_pending: int = 0
    foreign_changes: dict[Family, int] = {}
    check_delays: dict[Family, float] = {}
    left_tables: dict[Family, int] = {}
    audit_differences: dict[Family, int] = {}
    service_ports: dict[Family, int] = {}
    hashed_service_ports: dict[Family, int] = {}
    health_check_services: dict[Family, int] = {}
    listen_failures: dict[Family, int] = {}
    libnftables_starts: int = 0
    dropped_log_lines: int = 0


class Metrics:
    """The metrics of one process; thread-safe."""

    def __init__(self) -> None:
        """Start at zero; as in kube-proxy, a series with labels appears with its first value."""
        self._registry = registry = CollectorRegistry()
        self._texts: list[Callable[[], str]] = []
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self.syncs = SyncMetrics(registry)
        self._healthz = Counter(
            "kubeproxy_proxy_healthz_total", "Responses of /healthz by HTTP status", ("code",), registry=registry
        )
        self._livez = Counter(
            "kubeproxy_proxy_livez_total", "Responses of /livez by HTTP status", ("code",), registry=registry
        )
        self._reconciler_duration = Histogram(
            "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "Time to list the conntrack entries and delete the stale ones",
            _FAMILY_LABEL,
            buckets=SYNC_BUCKETS,
            registry=registry,
        )
        self._reconciler_deleted = Counter(
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            "Deleted stale conntrack entries",
            _FAMILY_LABEL,
            registry=registry,
        )
        self._ended_connections = Counter(
            "knft_drain_ended_connections_total",
            "TCP connections to deleted endpoints that were ended because of knft.dev/drain: reset",
            _FAMILY_LABEL,
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server by status, method and host; code is <error> if there was no response",
            ("code", "method", "host"),
            registry=registry,
        )
        self._request_duration = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server started to respond",
            ("verb", "host"),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._dropped_events = Counter(
            "knft_events_dropped_total", "Events that the API server did not accept", registry=registry
        )
        build = Gauge(
            "knft_build_info",
            "1, labelled with the versions of knft and Python",
            ("version", "python"),
            registry=registry,
        )
        build.labels(knft.__version__, python_version()).set(1)

        self._slis = slis = CollectorRegistry()
        self._healthcheck = Gauge(
            "kubernetes_healthcheck", "1 if the last check succeeded", ("name", "type"), registry=slis
        )
        self._healthchecks = Counter(
            "kubernetes_healthchecks_total",
            "Checks by result",
            ("name", "status", "type"),
            registry=slis,
        )

    def register(self, collector: Collector) -> None:
        """Add a collector to ``/metrics``."""
        self._registry.register(collector)

    def register_text(self, text: Callable[[], str]) -> None:
        """Add metrics to ``/metrics`` that ``text`` returns in Prometheus text format.

        The client library takes 16 us for a series, which is too long for thousands.
        """
        self._texts.append(text)

    def scrape(self) -> bytes:
        """Return the metrics of ``/metrics`` in Prometheus text format, version 0.0.4."""
        return generate_latest(_GoBucketBounds(self._registry)) + "".join(text() for text in self._texts).encode()

    def scrape_slis(self) -> bytes:
        """Return the service level indicators of ``/metrics/slis``, in the same format."""
        return generate_latest(_GoBucketBounds(self._slis))

    def count_probe(self, probe: str, status: int) -> None:
        """Count a response of ``probe``, which is ``healthz`` or ``livez``."""
        (self._healthz if probe == "healthz" else self._livez).labels(str(status)).inc()

    def count_ping(self) -> None:
        """Count a request for ``/healthz`` of the metrics server."""
        self._healthcheck.labels("ping", "healthz").set(1)
        self._healthchecks.labels("ping", "success", "healthz").inc()

    def observe_conntrack_reconcile(self, family: Family, seconds: float, deleted: int) -> None:
        """Record a run of the conntrack reconciler: its duration in seconds and the number of deleted entries."""
        self._reconciler_duration.labels(family.value).observe(seconds)
        self._reconciler_deleted.labels(family.value).inc(deleted)

    def count_ended_connections(self, family: Family, count: int) -> None:
        """Count connections to deleted endpoints that were ended."""
        self._ended_connections.labels(family.value).inc(count)

    def count_dropped_event(self) -> None:
        """Count an event that could not be sent to the API server."""
        self._dropped_events.inc()

    def observe_api_request(self, code: str, method: str, host: str, seconds: float) -> None:
        """Record a request to the API server at ``host`` (``name:port``), and the seconds until its response.

        ``code`` is the HTTP status as text, or ``<error>`` if there was no response; ``method`` is GET, POST and so on.
        """
        self._requests.labels(code, method, host).inc()
        self._request_duration.labels(method, host).observe(seconds)


class _SyncGauge:
    """The value of a gauge that each sync sets; the client library reads it when it is scraped, which is less often."""

    def __init__(self, series: Gauge) -> None:
        self._value = 0.0
        series.set_function(lambda: self._value)

    def set(self, value: float) -> None:
        self._value = value


class SyncMetrics:
    """The metrics of syncs: each attribute takes label values and returns the series with those labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""

        # Cached, because looking up a series by its labels takes longer than updating it.
        def duration(name: str, text: str, buckets: Iterable[float] = SYNC_BUCKETS) -> Callable[[str], Histogram]:
            return cache(Histogram(name, text, _FAMILY_LABEL, buckets=tuple(buckets), registry=registry).labels)

        def gauge(name: str, text: str, *labels: str) -> Callable[..., _SyncGauge]:
            series = Gauge(name, text, _FAMILY_LABEL + labels, registry=registry).labels
            return cache(lambda *values: _SyncGauge(series(*values)))

        def counter(name: str, text: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(name, text, _FAMILY_LABEL + labels, registry=registry).labels)

        proxy = "kubeproxy_"
        rules = f"{proxy}sync_proxy_rules_"
        self.duration = duration(f"{rules}duration_seconds", "Duration of syncs, including failed ones")
        self.full_duration = duration(
            f"{proxy}sync_full_proxy_rules_duration_seconds", "Duration of full syncs, which read the table back"
        )
        self.partial_duration = duration(
            f"{proxy}sync_partial_proxy_rules_duration_seconds", "Duration of partial syncs, which send only changes"
        )
        self.last_success = gauge(
            f"{rules}last_timestamp_seconds", "Time of the last successful sync, in seconds since 1970"
        )
        self.last_queued = gauge(
            f"{rules}last_queued_timestamp_seconds", "Time when a sync was queued last, in seconds since 1970"
        )
        self.programming_latency = duration(
            f"{proxy}network_programming_duration_seconds",
            "Time from a change of a pod or Service in the cluster until the rules contain it",
            PROGRAMMING_BUCKETS,
        )
        self.no_local_endpoints = gauge(
            f"{rules}no_local_endpoints_total",
            "Service ports whose traffic is dropped because their policy is Local and no endpoint is on this node",
            "traffic_policy",
        )
        self.sync_failures = counter(f"{rules}nftables_sync_failures_total", "Failed syncs")
        self.cleanup_failures = counter(
            f"{rules}nftables_cleanup_failures_total", "Transactions to delete stale objects that the kernel refused"
        )
        self.kernel_duration = duration(
            "knft_sync_kernel_duration_seconds", "Time of a sync that was spent in libnftables and the kernel"
        )
        self.elements = counter(
            "knft_elements_sent_total", "Set and map elements that knft added or removed", "operation"
        )
        self.chains_written = counter("knft_chains_written_total", "Chains that knft created or rewrote")
        self.quarantined = gauge(
            "knft_quarantined_service_ports",
            "Service ports with outdated or missing rules, because the kernel refuses new ones",
        )
        self.too_large = gauge("knft_too_large_services", "Services that are left out because they are too large")
        self.contested = gauge(
            "knft_contested_frontends", "Claims to frontends that another Service owns, so that they have no effect"
        )
        self.removal_refused = gauge(
            "knft_removal_refused", "1 while the table contains stale objects that the kernel refuses to delete"
        )
        self.repair_failed = gauge(
            "knft_repair_failed",
            "1 while the table differs from the expected rules, although knft has tried to repair it",
        )
        self.foreign_objects_removed = counter(
            "knft_foreign_objects_removed_total", "Chains, sets and other objects of other programs that knft deleted"
        )


def _scraped_metrics(values: ScrapeValues) -> Iterator[Metric]:
    rules = "kubeproxy_sync_proxy_rules_"
    yield CounterMetricFamily(
        f"{rules}service_changes_total",
        "Service changes, counted once for each of both families",
        value=values.service_changes,
    )
    yield GaugeMetricFamily(
        f"{rules}service_changes_pending",
        "Services with a change that is not synced yet",
        value=values.services_pending,
    )
    yield CounterMetricFamily(
        f"{rules}endpoint_changes_total", "EndpointSlice changes of both families", value=values.endpoint_changes
    )
    yield GaugeMetricFamily(
        f"{rules}endpoint_changes_pending",
        "EndpointSlice changes that are not synced yet",
        value=values.endpoint_changes_pending,
    )
    yield CounterMetricFamily(
        "knft_libnftables_starts_total", "Started worker processes of libnftables", value=values.libnftables_starts
    )
    yield CounterMetricFamily(
        "knft_log_lines_dropped_total",
        "Log lines that standard error did not accept",
        value=values.dropped_log_lines,
    )
    for kind, name, text, read in _FAMILY_METRICS:
        metric = kind(name, text, labels=_FAMILY_LABEL)
        for family, value in read(values).items():
            metric.add_metric([family.value], value)
        yield metric


_FAMILY_METRICS: tuple[tuple[_Kind, str, str, Callable[[ScrapeValues], Mapping[Family, float]]], ...] = (
    (CounterMetricFamily, "knft_foreign_changes_total", "Transactions of other programs that changed the table",
     lambda values: values.foreign_changes),
    (GaugeMetricFamily, "knft_check_delay_seconds", "Delay of the check after a change by another program",
     lambda values: values.check_delays),
    (GaugeMetricFamily, "knft_table_left_to_older_version", "1 while the table is left to an older version",
     lambda values: values.left_tables),
    (CounterMetricFamily, "knft_audit_differences_total", "Elements and chains that an audit found changed",
     lambda values: values.audit_differences),
    (GaugeMetricFamily, "knft_service_ports", "Service ports",
     lambda values: values.service_ports),
    (GaugeMetricFamily, "knft_hashed_service_ports", "Service ports with consistent hashing",
     lambda values: values.hashed_service_ports),
    (GaugeMetricFamily, "knft_health_check_services", "Services whose health check port is open",
     lambda values: values.health_check_services),
    (CounterMetricFamily, "knft_health_check_listen_failures_total", "Failed attempts to open a health check port",
     lambda values: values.listen_failures),
)  # fmt: skip


class ScrapeCollector(Collector):
    """Reads the values that other objects keep at each scrape."""

    def __init__(self, read_values: Callable[[], ScrapeValues]) -> None:
        """Get the values from ``read_values``, which must be thread-safe."""
        self._read_values = read_values

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the current values."""
        return _scraped_metrics(self._read_values())


class _GoBucketBounds(Collector):
    """Writes bucket bounds as Go does, since dashboards select ``le="1"`` and not ``le="1.0"``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            if metric.type == "histogram":
                metric.samples = [
                    sample._replace(labels={**sample.labels, "le": sample.labels["le"].removesuffix(".0")})
                    if "le" in sample.labels
                    else sample
                    for sample in metric.samples
                ]
            yield metric
