"""KernelCounters: reads what the kernel counts in a thread of its own, so that a scrape only reads memory.

These are the connections of each Service port (``--service-counters``), and conntrack's entries and failures.
"""

import logging
import threading
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.conntrack_usage import (
    ConntrackStatistics,
    conntrack_entries,
    conntrack_maximum,
    conntrack_statistics,
)
from knft.kernel.counter_reader import Counts, read_counters
from knft.memory_errors import exit_if_out_of_memory
from knft.model.names import ServicePortName
from knft.model.plan import Frontend
from knft.render.names import COUNTER_SETS, TABLE
from knft.serve.connection_totals import MAX_SERVICE_PORTS, Connections, ConnectionTotals
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

log = logging.getLogger("knft")

READ_SECONDS = 5.0
"""How often the counters are read. See docs/design/service-counters.md#cost."""


class ServiceCounters(SyncObserver):
    """The connections of each Service port; safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        """Start without readings."""
        self._clock = clock
        self._lock = threading.Lock()
        self._totals = ConnectionTotals()
        self._attempted: set[Family] = set()
        """The families with a sync: before that, knft does not know whose elements it finds."""
        self._errors: dict[Family, str] = {}
        self.last_read: Timestamp | None = None
        """When all families were read last."""

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Record the frontends of the changed Service ports."""
        with self._lock:
            self._attempted.add(report.family)
            changed = {name: state.frontends(name) for name in report.changed_service_ports}
            self._totals.set_frontends(report.family, changed)

    def sync_failed(self, family: Family, seconds: float, error: str) -> None:
        """Read the counters of the other family, even if no sync of this one succeeds."""
        del seconds, error
        with self._lock:
            self._attempted.add(family)

    def read(self) -> None:
        """Read the counters of all families from the kernel; log an error once."""
        if len(self._attempted) < len(Family):
            return
        readings = {family: counts for family in Family if (counts := self._read_family(family)) is not None}
        with self._lock:
            self._totals.add_readings(readings)
        if len(readings) == len(Family):
            self.last_read = self._clock()

    def _read_family(self, family: Family) -> dict[str, Counts] | None:
        try:
            counts = read_counters(family.number, TABLE, sorted(COUNTER_SETS))
        except KernelError as error:
            if self._errors.get(family) != str(error):
                log.warning("%s: the connections of Services are not counted: %s", family.value, error)
            self._errors[family] = str(error)
            return None
        self._errors.pop(family, None)
        return counts

    def by_service_port(self) -> dict[ServicePortName, Connections]:
        """Return the connections of each Service port at the last reading."""
        with self._lock:
            return self._totals.by_service_port()

    def by_frontend(self) -> list[tuple[Family, ServicePortName, Frontend, Connections]]:
        """Return the connections of each frontend at the last reading."""
        with self._lock:
            return self._totals.by_frontend()

    @property
    def left_out_count(self) -> int:
        """How many Service ports are left out, because there are too many."""
        with self._lock:
            return self._totals.left_out_count


class ConntrackUsage(Struct, frozen=True):
    """What the kernel reports about conntrack; None if it does not."""

    entries: int | None = None
    maximum: int | None = None
    statistics: ConntrackStatistics | None = None


class KernelCounters(Collector):
    """Reads the counters in a thread, and serves the last values as metrics."""

    def __init__(self, services: ServiceCounters | None) -> None:
        """Start without values; ``services`` is None without ``--service-counters``."""
        self.services = services
        self.conntrack = ConntrackUsage()

    def run(self, stop: threading.Event) -> None:
        """Read the counters until ``stop`` is set. Needs its own thread."""
        while not stop.wait(READ_SECONDS):
            try:
                self.read()
            except Exception as error:
                exit_if_out_of_memory(error)
                log.exception("the reading of counters failed unexpectedly; please report this")

    def read(self) -> None:
        """Read all counters from the kernel."""
        self.conntrack = ConntrackUsage(conntrack_entries(), conntrack_maximum(), _statistics())
        if self.services is not None:
            self.services.read()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last values."""
        yield from _conntrack_metrics(self.conntrack)
        if self.services is not None:
            yield from _reading_metrics(self.services)


def _statistics() -> ConntrackStatistics | None:
    try:
        return conntrack_statistics()
    except KernelError as error:
        log.debug("%s", error)
        return None


def _conntrack_metrics(usage: ConntrackUsage) -> Iterator[Metric]:
    gauges = (
        ("entries", "Conntrack entries in this network namespace", usage.entries),
        ("max_entries", "Maximum number of conntrack entries", usage.maximum),
    )
    for name, text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"knft_conntrack_{name}", text, value=value)
    found = usage.statistics
    if found is None:
        return
    counters = (
        ("insert_failures", "Conntrack entries that could not be inserted", found.insert_failures),
        ("drops", "Packets dropped because no conntrack entry could be created or inserted", found.drops),
        ("early_drops", "Conntrack entries removed early to make room", found.early_drops),
    )
    for name, text, value in counters:
        yield CounterMetricFamily(f"knft_conntrack_{name}", text, value=value)


_HEADS = tuple(
    f"# HELP {name} {text}\n# TYPE {name} counter\n"
    for name, text in (
        ("knft_service_connections_total", "New connections to a Service port, with the refused ones"),
        ("knft_service_refused_connections_total", "New connections to a Service port that were rejected or dropped"),
    )
)


def connections_text(services: ServiceCounters) -> str:
    """Return the metrics of the connections of all Service ports in Prometheus text format."""
    connections, refused = [], []
    for labels, counted in _by_labels(services).items():
        connections.append(f"knft_service_connections_total{{{labels}}} {counted.new}\n")
        refused += [
            f'knft_service_refused_connections_total{{action="{action}",{labels}}} {count}\n'
            for action, count in (("rejected", counted.rejected), ("dropped", counted.dropped))
            if count
        ]
    return "".join((_HEADS[0], *connections, _HEADS[1], *refused))


def _by_labels(services: ServiceCounters) -> dict[str, Connections]:
    """Return the connections by labels: a name of a port may stand for several protocols."""
    found: dict[str, Connections] = {}
    for name, counted in services.by_service_port().items():
        labels = _labels(name)
        found[labels] = found[labels] + counted if labels in found else counted
    return found


@lru_cache(maxsize=MAX_SERVICE_PORTS)
def _labels(name: ServicePortName) -> str:
    values = {"namespace": name.namespace, "port": name.port, "service": name.name}
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _reading_metrics(services: ServiceCounters) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "knft_service_counters_left_out",
        "Service ports whose connections are not served as metrics, because there are too many",
        value=services.left_out_count,
    )
    yield GaugeMetricFamily(
        "knft_service_counters_last_read_timestamp_seconds",
        "Time when the connections were read last, in seconds since 1970",
        value=services.last_read.unix_seconds if services.last_read is not None else 0,
    )
