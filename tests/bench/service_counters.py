"""``python -m tests.bench.service_counters`` compares knft with and without ``--service-counters``.

It measures both settings in turn, each time in a process of its own with an empty table. The CPU time is that of this
process and of its worker process together: for the first sync of dual-stack Services, for changes beside them, and for
what the thread ``kernel-counters`` does in each period and a scrape does with its result. Memory is the proportional
set size of both processes after that; it includes the objects that the benchmark makes.
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from msgspec import Struct, structs
from msgspec.json import decode, encode

from knft.families import Family
from knft.kernel.counter_reader import Counts, read_counters
from knft.render.names import COUNTER_SETS, TABLE
from knft.serve.kernel_counters import READ_SECONDS
from knft.serve.service_counters import ServiceCounters
from knft.serve.timestamp import now
from tests.bench.changes import steps
from tests.bench.cluster import Cluster, ServiceSpec, Shape
from tests.bench.machine import describe, load_at_end
from tests.bench.manifests import changes, first_changes
from tests.bench.process_tree import pss_mib
from tests.bench.timed_knft import CONFIG, TimedKnft
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

READINGS = 5


class DualStackCluster(Cluster):
    """A cluster whose Services are all dual-stack."""

    def build_service(self, number: int, endpoints: tuple[int, ...]) -> ServiceSpec:
        return structs.replace(super().build_service(number, endpoints), is_dual_stack=True)


class Reading(Struct, frozen=True):
    """The cost of the counters: ms of CPU time, and how many there are."""

    counters: int
    read_ms: float
    """To read, decode and add all counters, of which none has changed."""
    changed_ms: float
    """To add all counters if all have changed, after they were read."""
    scrape_ms: float
    """To write the text of all series."""


class Figures(Struct, frozen=True):
    """What one process measured: CPU time, and MiB of memory; ``reading`` is None without counters."""

    first_sync_s: float
    endpoint_replaced_ms: float
    service_added_ms: float
    pss_mib: float
    reading: Reading | None


def main() -> None:
    """Measure, or run as one of the measured processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.service_counters", description=__doc__)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=3, help="of each Service")
    parser.add_argument("--changes", type=int, default=100, help="number of changes of each kind")
    parser.add_argument("--runs", type=int, default=5, help="runs with each setting, in turn; the median counts")
    parser.add_argument("--setting", choices=["off", "on"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = Shape(f"{arguments.services}x{arguments.endpoints}", arguments.services, arguments.endpoints)
    if arguments.setting:
        print(encode(_measure(shape, arguments.changes, is_counting=arguments.setting == "on")).decode())
        return
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    machine = describe()
    without, counting = [], []
    for _ in range(arguments.runs):
        without.append(_run("off"))
        counting.append(_run("on"))
    for name, value in (machine | load_at_end()).items():
        print(f"{name}: {value}")
    print(f"{shape.name}, dual-stack; medians of {arguments.runs} runs with each setting")
    print("\n".join(table(without, counting)))


def _run(setting: str) -> Figures:
    command = [sys.executable, "-m", "tests.bench.service_counters", *sys.argv[1:], "--setting", setting]
    with closing(Namespace.create("service-counters")) as namespace:
        return decode(namespace.run(command).stdout.splitlines()[-1], type=Figures)


def table(without: Sequence[Figures], counting: Sequence[Figures]) -> Iterator[str]:
    """Yield the lines of a table with the medians and their ratios, and then the cost of the readings."""
    yield "| | without counters | with counters | ratio |"
    yield "| --- | --- | --- | --- |"
    for name, field in (
        ("first sync: CPU, s", "first_sync_s"),
        ("endpoint replaced: CPU, ms", "endpoint_replaced_ms"),
        ("Service added: CPU, ms", "service_added_ms"),
        ("PSS of both processes, MiB", "pss_mib"),
    ):
        values = [statistics.median(getattr(each, field) for each in figures) for figures in (without, counting)]
        yield f"| {name} | {values[0]:.3g} | {values[1]:.3g} | {values[1] / values[0]:.2f} |"
    readings = [each.reading for each in counting if each.reading is not None]
    read, changed, scrape = (
        statistics.median(getattr(each, field) for each in readings) for field in ("read_ms", "changed_ms", "scrape_ms")
    )
    period = READ_SECONDS * 1e3
    yield f"{readings[0].counters} counters are read every {READ_SECONDS:g} s"
    yield f"a reading: {read:.3g} ms of CPU time, {read / period:.2%} of a core"
    yield f"if all have changed: {changed:.3g} ms more, {(read + changed) / period:.2%} of a core"
    yield f"text of a scrape: {scrape:.3g} ms of CPU time"


def _measure(shape: Shape, count: int, *, is_counting: bool) -> Figures:
    counters, cluster = ServiceCounters(now), DualStackCluster(shape)
    config = structs.replace(CONFIG, service_counters=is_counting)
    knft = TimedKnft(config, (counters,) if is_counting else ())
    first = list(first_changes(cluster))
    first_sync = knft.sync(first).cpu
    first.clear()
    reading = _measure_reading(counters) if is_counting else None
    kinds = ("endpoint replaced", "Service added")
    medians = [
        statistics.median(knft.sync(list(changes(step))).cpu for step in steps(cluster, kind, count)) for kind in kinds
    ]
    gc.collect()
    return Figures(first_sync, medians[0] * 1e3, medians[1] * 1e3, pss_mib(os.getpid()), reading)


def _measure_reading(counters: ServiceCounters) -> Reading:
    read_ms = _cpu_ms(counters.read)
    readings = {family: read_counters(family.number, TABLE, sorted(COUNTER_SETS)) for family in Family}
    count = sum(len(counts) for sets in readings.values() for counts in sets.values())
    changed_ms = _cpu_ms(lambda: counters._totals.add_readings(readings), lambda: _increase(readings))
    return Reading(count, read_ms, changed_ms, _cpu_ms(counters.connections_text))


def _increase(readings: dict[Family, dict[str, Counts]]) -> None:
    """Count another packet at each counter."""
    for sets in readings.values():
        for counts in sets.values():
            counts.update({key: count + 1 for key, count in counts.items()})


def _cpu_ms(work: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Return the median CPU time of this process for some work, each time after ``prepare``, which does not count."""
    times = []
    for _ in range(READINGS):
        prepare()
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main()
