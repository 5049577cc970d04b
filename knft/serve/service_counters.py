"""ServiceCounters: the connections of each Service port, as the kernel counts them (``--service-counters``)."""

import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.counter_reader import Counts, read_counters
from knft.model.names import ServicePortName
from knft.model.plan import Frontend
from knft.render.names import COUNTER_SETS, TABLE
from knft.serve.connection_totals import MAX_SERVICE_PORTS, Connections, ConnectionTotals
from knft.serve.timestamp import Clock, Timestamp
from knft.sync.lasting_problems import LastingProblems
from knft.sync.observer import SyncObserver
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState

_METRIC_HEADERS = tuple(
    f"# HELP {name} {text}\n# TYPE {name} counter\n"
    for name, text in (
        ("knft_service_connections_total", "New connections to a Service port, with the refused ones"),
        ("knft_service_refused_connections_total", "New connections to a Service port that were rejected or dropped"),
    )
)


class ServiceCounters(SyncObserver):
    """The connections of each Service port; safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        """Start without readings."""
        self._clock = clock
        self._lock = threading.Lock()
        self._totals = ConnectionTotals()
        self._families_with_sync: set[Family] = set()
        """Families with a sync, even a failed one: before that, knft does not know whose elements it finds."""
        self._problems = LastingProblems()
        self.last_read: Timestamp | None = None
        """When all families were read last."""

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        """Record the frontends of the changed Service ports."""
        with self._lock:
            self._families_with_sync.add(report.family)
            changed = {name: state.frontends(name) for name in report.changed_service_ports}
            self._totals.set_frontends(report.family, changed)

    def sync_failed(self, family: Family, seconds: float, error: str) -> None:
        """Read the counters of the other family, even if no sync of this one succeeds."""
        del seconds, error
        with self._lock:
            self._families_with_sync.add(family)

    def read(self) -> None:
        """Read the counters of all families from the kernel; log an error when it begins and when it ends."""
        if len(self._families_with_sync) < len(Family):
            return
        with self._lock:
            self._totals.begin_reading()
        readings = {family: counts for family in Family if (counts := self._read_family(family)) is not None}
        with self._lock:
            self._totals.add_readings(readings)
        if len(readings) == len(Family):
            self.last_read = self._clock()

    def _read_family(self, family: Family) -> dict[str, Counts] | None:
        counts, problems = None, list[str]()
        try:
            counts = read_counters(family.number, TABLE, sorted(COUNTER_SETS))
        except KernelError as error:
            problems.append(f"the connections of Services are not counted: {error}")
        self._problems.update(problems, family.value)
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
    def not_counted(self) -> int:
        """How many Service ports have no totals, because there are too many."""
        with self._lock:
            return self._totals.not_counted

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the reading."""
        yield GaugeMetricFamily(
            "knft_service_counters_left_out",
            "Service ports whose connections are not served as metrics, because there are too many",
            value=self.not_counted,
        )
        yield GaugeMetricFamily(
            "knft_service_counters_last_read_timestamp_seconds",
            "Time when the connections were read last, in seconds since 1970",
            value=self.last_read.unix_seconds if self.last_read is not None else 0,
        )

    def connections_text(self) -> str:
        """Return the metrics of the connections of all Service ports in Prometheus text format."""
        connections, refused = [], []
        for labels, counted in _by_labels(self.by_service_port()).items():
            connections.append(f"knft_service_connections_total{{{labels}}} {counted.new}\n")
            refused += [
                f'knft_service_refused_connections_total{{action="{action}",{labels}}} {count}\n'
                for action, count in (("rejected", counted.rejected), ("dropped", counted.dropped))
                if count
            ]
        return "".join((_METRIC_HEADERS[0], *connections, _METRIC_HEADERS[1], *refused))


def _by_labels(by_service_port: Mapping[ServicePortName, Connections]) -> dict[str, Connections]:
    """Return the connections by labels: a name of a port may stand for several protocols."""
    found: dict[str, Connections] = {}
    for name, counted in by_service_port.items():
        labels = _labels(name)
        found[labels] = found[labels] + counted if labels in found else counted
    return found


@lru_cache(maxsize=MAX_SERVICE_PORTS)
def _labels(name: ServicePortName) -> str:
    values = {"namespace": name.namespace, "port": name.port, "service": name.name}
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
