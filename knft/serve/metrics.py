"""Metrics: kube-proxy's by name, type, labels and buckets (behaviour.md H), and knft's own; home of prometheus_client.

What is counted here is counted where it happens; what others count (trackers, the daemon) is asked for at each scrape.
"""

from collections.abc import Callable, Iterable, Iterator
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
from knft.model.names import Family

# kube-proxy has no series that say when another one began.
disable_created_metrics()  # type: ignore[no-untyped-call]

SYNC_BUCKETS = tuple(0.001 * 2**power for power in range(15))
PROGRAMMING_BUCKETS = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)

_FAMILY = ("ip_family",)
_Kind = type[CounterMetricFamily | GaugeMetricFamily]


class Followed(Struct, frozen=True):
    """Figures that others keep, as they are now.

    The first four are the trackers' (A.2, A.4): of what waits, the larger number of both families, as most changes are
    of both. ``foreign_changes`` are others' transactions in the tables, ``audit_differences`` elements and chains that
    were not what was committed, ``listeners`` Services whose health check port is open.
    """

    service_changes: int = 0
    services_pending: int = 0
    endpoint_changes: int = 0
    slices_pending: int = 0
    foreign_changes: dict[Family, int] = {}
    audit_differences: dict[Family, int] = {}
    service_ports: dict[Family, int] = {}
    listeners: dict[Family, int] = {}
    listen_failures: dict[Family, int] = {}
    libnftables_starts: int = 0


class Metrics:
    """Everything that is counted in one process; from any thread."""

    def __init__(self) -> None:
        """Start at zero; a series with labels is there from its first value on, as in kube-proxy."""
        self._registry = registry = CollectorRegistry()
        self.followed: Callable[[], Followed] = Followed
        """Is asked at each scrape."""
        registry.register(_Asked(lambda: _families(self.followed())))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self.syncs = SyncMetrics(registry)
        self._healthz = Counter(
            "kubeproxy_proxy_healthz_total", "Answers of /healthz by their status", ("code",), registry=registry
        )
        self._livez = Counter(
            "kubeproxy_proxy_livez_total", "Answers of /livez by their status", ("code",), registry=registry
        )
        self._reconciler_duration = Histogram(
            "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "How long it took to look through the conntrack entries and delete the stale ones",
            _FAMILY,
            buckets=SYNC_BUCKETS,
            registry=registry,
        )
        self._reconciler_deleted = Counter(
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            "Stale conntrack entries that were deleted",
            _FAMILY,
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server by status, method and host; <error> where there was no answer",
            ("code", "method", "host"),
            registry=registry,
        )
        self._request_duration = Histogram(
            "rest_client_request_duration_seconds",
            "How long it took until the API server began to answer",
            ("verb", "host"),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        build = Gauge("knft_build_info", "1, for the versions at work", ("version", "python"), registry=registry)
        build.labels(knft.__version__, python_version()).set(1)

        self._indicators = indicators = CollectorRegistry()
        self._check = Gauge(
            "kubernetes_healthcheck", "1 where a check succeeded last", ("name", "type"), registry=indicators
        )
        self._checks = Counter(
            "kubernetes_healthchecks_total",
            "Checks by their outcome",
            ("name", "status", "type"),
            registry=indicators,
        )

    def scrape(self) -> bytes:
        """Return everything in Prometheus' text format, version 0.0.4."""
        return generate_latest(_AsGoWrites(self._registry))

    def scrape_indicators(self) -> bytes:
        """Return the service level indicators of ``/metrics/slis`` in the same format."""
        return generate_latest(_AsGoWrites(self._indicators))

    def probed(self, probe: str, status: int) -> None:
        """Count an answer of ``healthz`` or ``livez``."""
        (self._healthz if probe == "healthz" else self._livez).labels(str(status)).inc()

    def pinged(self) -> None:
        """Count that somebody has asked whether this process answers at all."""
        self._check.labels("ping", "healthz").set(1)
        self._checks.labels("ping", "success", "healthz").inc()

    def conntrack_reconciled(self, family: Family, seconds: float, deleted: int) -> None:
        """Count a look through the conntrack entries, which took so long and deleted so many."""
        self._reconciler_duration.labels(family.value).observe(seconds)
        self._reconciler_deleted.labels(family.value).inc(deleted)

    def api_request(self, code: str, method: str, host: str, seconds: float) -> None:
        """Count a request to the API server at ``host`` (``name:port``) that was answered after so many seconds.

        ``code`` is the status as text, or ``<error>`` where there was none; ``method`` is GET, POST and so on.
        """
        self._requests.labels(code, method, host).inc()
        self._request_duration.labels(method, host).observe(seconds)


class SyncMetrics:
    """What syncs are measured by: each returns the series of the labels that it is called with, always the same one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register all of it."""

        # To look a series up by its labels takes longer than to count in it.
        def duration(name: str, text: str, buckets: Iterable[float] = SYNC_BUCKETS) -> Callable[[str], Histogram]:
            return cache(Histogram(name, text, _FAMILY, buckets=tuple(buckets), registry=registry).labels)

        def gauge(name: str, text: str, *labels: str) -> Callable[..., Gauge]:
            return cache(Gauge(name, text, _FAMILY + labels, registry=registry).labels)

        def counter(name: str, text: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(name, text, _FAMILY + labels, registry=registry).labels)

        proxy = "kubeproxy_"
        rules = f"{proxy}sync_proxy_rules_"
        self.duration = duration(f"{rules}duration_seconds", "How long a sync took, failed ones included")
        self.full_duration = duration(
            f"{proxy}sync_full_proxy_rules_duration_seconds", "How long a sync took that read the table back"
        )
        self.partial_duration = duration(
            f"{proxy}sync_partial_proxy_rules_duration_seconds", "How long a sync took that knew the table"
        )
        self.last = gauge(f"{rules}last_timestamp_seconds", "When a sync succeeded last, in seconds since 1970")
        self.last_queued = gauge(
            f"{rules}last_queued_timestamp_seconds", "When a sync was asked for last, in seconds since 1970"
        )
        self.programming = duration(
            f"{proxy}network_programming_duration_seconds",
            "From the change of a pod or a Service in the cluster to the rules that know of it",
            PROGRAMMING_BUCKETS,
        )
        self.no_local_endpoints = gauge(
            f"{rules}no_local_endpoints_total",
            "Service ports whose traffic is dropped, as their policy is Local and no endpoint is on this node",
            "traffic_policy",
        )
        self.sync_failures = counter(f"{rules}nftables_sync_failures_total", "Syncs that failed as a whole")
        self.cleanup_failures = counter(
            f"{rules}nftables_cleanup_failures_total", "Transactions refused that were to remove what nobody wants"
        )
        self.kernel_duration = duration(
            "knft_sync_kernel_duration_seconds", "The part of a sync that went to libnftables and the kernel"
        )
        self.elements = counter("knft_elements_sent_total", "Elements that were added or removed", "operation")
        self.chains = counter("knft_chains_written_total", "Chains that were made, or written anew")
        self.left_out = gauge(
            "knft_left_out_service_ports", "Service ports without rules, as the kernel refuses theirs"
        )
        self.lost = gauge("knft_lost_frontends", "Claims to an address and port that another Service has")
        self.unswept = gauge("knft_unswept", "1 while what nobody wants cannot be removed from the table")


def _families(now: Followed) -> Iterator[Metric]:
    """Yield what others count."""
    rules = "kubeproxy_sync_proxy_rules_"
    yield CounterMetricFamily(
        f"{rules}service_changes_total", "Changes of Services, in each family", value=now.service_changes
    )
    yield GaugeMetricFamily(
        f"{rules}service_changes_pending", "Services whose change waits for a sync", value=now.services_pending
    )
    yield CounterMetricFamily(
        f"{rules}endpoint_changes_total", "Changes of EndpointSlices of either family", value=now.endpoint_changes
    )
    yield GaugeMetricFamily(
        f"{rules}endpoint_changes_pending", "Changes of EndpointSlices that wait for a sync", value=now.slices_pending
    )
    yield CounterMetricFamily(
        "knft_libnftables_starts_total", "Processes that were started for libnftables", value=now.libnftables_starts
    )
    for kind, name, text, values in _BY_FAMILY:
        metric = kind(name, text, labels=_FAMILY)
        for family, value in values(now).items():
            metric.add_metric([family.value], value)
        yield metric


_BY_FAMILY: tuple[tuple[_Kind, str, str, Callable[[Followed], dict[Family, int]]], ...] = (
    (CounterMetricFamily, "knft_foreign_changes_total", "Transactions of others that changed the table",
     lambda now: now.foreign_changes),
    (CounterMetricFamily, "knft_audit_differences_total", "Elements and chains that an audit found changed",
     lambda now: now.audit_differences),
    (GaugeMetricFamily, "knft_service_ports", "Service ports that are known",
     lambda now: now.service_ports),
    (GaugeMetricFamily, "knft_health_check_services", "Services whose health check port is open",
     lambda now: now.listeners),
    (CounterMetricFamily, "knft_health_check_listen_failures_total", "Health check ports that could not be opened",
     lambda now: now.listen_failures),
)  # fmt: skip


class _Asked(Collector):
    """A collector that asks at each scrape."""

    def __init__(self, ask: Callable[[], Iterable[Metric]]) -> None:
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        return self._ask()


class _AsGoWrites(Collector):
    """A registry whose bounds of buckets are written as Go writes them: dashboards ask for ``le="1"``, not ``1.0``."""

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
