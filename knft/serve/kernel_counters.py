"""KernelCounters: reads what the kernel counts in a thread of its own, so that a scrape only reads memory.

These are the connections of each Service port (``--service-counters``), conntrack's entries and failures, dropped
INVALID packets (``--drop-invalid-packets``), and packets rejected at loopback addresses (a feature gate).
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from knft.errors import KernelError
from knft.kernel.conntrack_usage import (
    ConntrackStatistics,
    conntrack_entries,
    conntrack_maximum,
    conntrack_statistics,
)
from knft.memory_errors import exit_if_out_of_memory

if TYPE_CHECKING:
    from knft.serve.service_counters import ServiceCounters

log = logging.getLogger("knft")

READ_SECONDS = 5.0
"""How often the counters are read. See docs/design/service-counters.md#cost."""


class ConntrackUsage(Struct, frozen=True):
    """What the kernel reports about conntrack; None if it does not."""

    entries: int | None = None
    maximum: int | None = None
    statistics: ConntrackStatistics | None = None


class PacketCounts(Protocol):
    """What rules count."""

    def read(self) -> None:
        """Read the counters from the kernel."""

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the last values."""


class KernelCounters(Collector):
    """Reads the counters in a thread, and serves the last values as metrics."""

    def __init__(self, services: "ServiceCounters | None", packets: Sequence[PacketCounts] = ()) -> None:
        """Start without values; ``services`` is None without the option that counts them."""
        self.services = services
        self._packets = packets
        self.conntrack = ConntrackUsage()
        self._last_failure = ""
        """The unexpected error of the last reading, "" if there was none."""

    def run(self, stop: threading.Event) -> None:
        """Read the counters until ``stop`` is set. Needs its own thread."""
        while not stop.wait(READ_SECONDS):
            self._read_and_log()

    def _read_and_log(self) -> None:
        """Read all counters; log an unexpected error, and that readings succeed again."""
        try:
            self.read()
        except Exception as error:
            exit_if_out_of_memory(error)
            # A bug may make each reading fail for as long as knft runs.
            level = logging.DEBUG if self._last_failure == repr(error) else logging.ERROR
            self._last_failure = repr(error)
            log.log(level, "the reading of counters failed unexpectedly; please report this", exc_info=error)
        else:
            if self._last_failure:
                log.info("the readings of counters succeed again")
            self._last_failure = ""

    def read(self) -> None:
        """Read all counters from the kernel."""
        self.conntrack = ConntrackUsage(conntrack_entries(), conntrack_maximum(), _statistics())
        if self.services is not None:
            self.services.read()
        for counts in self._packets:
            counts.read()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last values."""
        yield from _conntrack_metrics(self.conntrack)
        if self.services is not None:
            yield from self.services.metrics()
        for counts in self._packets:
            yield from counts.metrics()


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
