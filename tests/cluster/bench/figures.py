"""The figures of a run: one value for each proxy, size and row of the table, computed from its records."""

from collections.abc import Callable, Sequence
from statistics import mean, median

from msgspec import Struct

from tests.bench.measure import percentile
from tests.bench.results import Results

START, CHANGE, BULK, RESTART = "start", "endpoint replaced", "endpoints replaced at once", "restart"
MEMORY, CONNECTION, IDLE, LOAD = "memory", "connection", "idle", "load"
Summary = Callable[[Sequence[float]], float]


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile, which is the largest of fewer than 100 values."""
    return percentile(values, 0.99)


class Figure(Struct, frozen=True):
    """A row of the table: a value of a measurement's records, summarised over all samples.

    Unless ``is_compared``, it does not depend on the proxy alone, and has no ratio. If ``is_elapsed``, it depends on
    the load of the machine.
    """

    label: str
    unit: str
    measure: str
    name: str
    summary: Summary = median
    is_compared: bool = True
    is_elapsed: bool = False

    def value(self, results: Results, proxy: str, size: str) -> float | None:
        """Return the value for a proxy, None if it was not measured."""
        found = results.samples(proxy, size, self.measure, self.name)
        return self.summary(found) if found else None


START_CPU = Figure("start until ready: CPU", "s", START, "cpu_s")
CHANGE_CPU = Figure("one endpoint replaced: CPU", "ms", CHANGE, "cpu_ms")
CHANGE_P50 = Figure("one endpoint replaced: time until in force, p50", "ms", CHANGE, "in_force_ms", is_elapsed=True)
BULK_CPU = Figure("200 endpoints replaced at once: CPU", "s", BULK, "cpu_s")
RESTART_CPU = Figure("restart with rules in place: CPU", "s", RESTART, "cpu_s")
MEMORY_SETTLED = Figure("memory after all changes", "MiB", MEMORY, "after_changes_mib")
FIGURES = (
    START_CPU,
    Figure("start until ready: time", "s", START, "ready_s", is_elapsed=True),
    CHANGE_CPU,
    CHANGE_P50,
    Figure("one endpoint replaced: time until in force, p99", "ms", CHANGE, "in_force_ms", p99, is_elapsed=True),
    BULK_CPU,
    Figure("200 endpoints replaced at once: time until in force", "s", BULK, "in_force_s", is_elapsed=True),
    RESTART_CPU,
    Figure("restart with rules in place: time", "s", RESTART, "ready_s", is_elapsed=True),
    Figure("idle: CPU of a second", "ms", IDLE, "cpu_ms_a_s"),
    Figure("memory after the start", "MiB", MEMORY, "after_start_mib"),
    MEMORY_SETTLED,
    Figure("the same as PSS", "MiB", MEMORY, "after_changes_pss_mib"),
    Figure("new connection, p50", "µs", CONNECTION, "p50_us"),
    Figure("the same to an endpoint without a Service, p50", "µs", CONNECTION, "direct_p50_us", is_compared=False),
    Figure("load of the machine", "processes for each core", LOAD, "of_a_core", mean, is_compared=False),
)
"""The rows of the table."""
# Processes that run or wait for a core, for each core.
_BUSY = 2.0


def load_of_a_core(results: Results, size: str) -> float:
    """Return the mean number of processes that each core had while a size was measured; 0 if it is unknown."""
    found = [record.values["of_a_core"] for record in results.records if (record.shape, record.measure) == (size, LOAD)]
    return mean(found) if found else 0.0


def shown_figures(results: Results, size: str) -> tuple[Figure, ...]:
    """Return the rows for a size: without elapsed times if the machine was too busy to measure them."""
    is_busy = load_of_a_core(results, size) > _BUSY
    return tuple(figure for figure in FIGURES if not (is_busy and figure.is_elapsed))
