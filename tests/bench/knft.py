"""Measures knft: a full sync, changes and memory; and libnftables alone with the same transaction."""

import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from knft.kernel.libnftables import Library
from knft.model.objects import KubeObject, ObjectChange
from tests.bench.changes import kinds, steps
from tests.bench.cluster import Cluster, Shape
from tests.bench.manifests import changes, first_changes
from tests.bench.measure import kernel_kib, peak_mib, percentile, reset_peak, resident_mib, trimmed_mib
from tests.bench.record import BARE, FULL, KNFT, MEMORY, Record, emit
from tests.bench.timed_knft import SyncTimes, TimedKnft, TimedLibrary, bare_commit

_PROFILE_LINES = 30
Result = TypeVar("Result")


def measure_knft(shape: Shape, syncs: int, settle_seconds: float, profile: str = "") -> None:
    """Measure a full sync, then ``syncs`` changes of each kind, and memory; with 0 the full sync only."""
    kernel_before = kernel_kib(settle_seconds) if syncs else 0
    knft, cluster, store = TimedKnft(), Cluster(shape), _ObjectStore()
    first = list(first_changes(cluster))
    store.record(first)
    gc.collect()
    reset_peak()
    before = resident_mib()
    times = _profiled(lambda: knft.sync(first), profile, "full")
    values = {
        "total_s": times.seconds,
        "tracked_s": times.tracked,
        "library_s": times.libnftables,
        "collector_s": times.collector,
        "cpu_s": times.cpu,
        "library_cpu_s": times.libnftables_cpu,
        "before_mib": before,
        "resident_mib": resident_mib(),
        "peak_mib": peak_mib(),
    }
    emit(Record(KNFT, shape.name, FULL, values))
    # Drops the last references to the first objects, so that replaced objects can be freed.
    first.clear()
    if syncs:
        kernel = kernel_kib(settle_seconds) - kernel_before
        for kind in kinds(shape):
            _measure_changes(knft, cluster, store, (kind, syncs), profile)
        _emit_memory(knft.libnftables, shape, kernel, settle_seconds)


def _measure_changes(
    knft: TimedKnft, cluster: Cluster, store: "_ObjectStore", kind_and_count: tuple[str, int], profile: str
) -> None:
    kind, syncs = kind_and_count
    reset_peak()
    times: list[SyncTimes] = []

    def run() -> None:
        for step in steps(cluster, kind, syncs):
            object_changes = list(changes(step))
            times.append(knft.sync(object_changes))
            store.record(object_changes)

    _profiled(run, profile, kind)
    seconds = [item.seconds for item in times]
    values = {
        "p50_ms": percentile(seconds, 0.5) * 1e3,
        "p99_ms": percentile(seconds, 0.99) * 1e3,
        "max_ms": max(seconds) * 1e3,
        "library_share": sum(item.libnftables for item in times) / sum(seconds),
        "library_p50_ms": percentile([item.libnftables for item in times], 0.5) * 1e3,
        "collector_share": sum(item.collector for item in times) / sum(seconds),
        "collector_max_ms": max(item.collector for item in times) * 1e3,
        "cpu_p99_ms": percentile([item.cpu for item in times], 0.99) * 1e3,
        "cpu_ms": sum(item.cpu for item in times) / len(times) * 1e3,
        "syncs": float(len(times)),
        "resident_mib": resident_mib(),
        "peak_mib": peak_mib(),
    }
    emit(Record(KNFT, cluster.shape.name, kind, values))


def _emit_memory(library: TimedLibrary, shape: Shape, kernel_rise: int, settle_seconds: float) -> None:
    """Report resident memory after all changes, and the kernel memory that deleting the tables frees."""
    resident = resident_mib()
    loaded = kernel_kib(settle_seconds)
    library.run("delete table ip knft")
    library.run("delete table ip6 knft")
    values = {
        "resident_mib": resident + library.resident_mib(),
        "library_mib": library.resident_mib(),
        "trimmed_mib": trimmed_mib(),
        "kernel_rise_mib": kernel_rise / 1024,
        "kernel_mib": (loaded - kernel_kib(settle_seconds)) / 1024,
    }
    emit(Record(KNFT, shape.name, MEMORY, values))


def measure_bare_commit(shape: Shape) -> None:
    """Measure libnftables with the IPv4 transaction of a first sync, rendered and serialised before."""
    declared, transaction = bare_commit(list(first_changes(Cluster(shape))))
    gc.collect()
    library = Library()
    cpu, started = time.process_time(), time.perf_counter()
    library.run(declared)
    library.run(transaction)
    values = {
        "total_s": time.perf_counter() - started,
        "cpu_s": time.process_time() - cpu,
        "sent_mib": len(transaction) / 2**20,
    }
    emit(Record(BARE, shape.name, FULL, values))


class _ObjectStore:
    """The current decoded objects, which a source of knft keeps."""

    def __init__(self) -> None:
        self._objects: dict[tuple[type, str], KubeObject] = {}

    def record(self, object_changes: list[ObjectChange]) -> None:
        for change in object_changes:
            found = change.current or change.previous
            if found is None:
                continue
            key = (type(found), found.metadata.name)
            self._objects.pop(key, None)
            if change.current is not None:
                self._objects[key] = change.current


def _profiled(work: Callable[[], Result], folder: str, name: str) -> Result:
    """Call ``work``; if there is a folder, write a profile of it there."""
    if not folder:
        return work()
    profiler = cProfile.Profile()
    result = profiler.runcall(work)
    with Path(folder, f"profile-{name.replace(' ', '-')}.txt").open("w") as file:
        pstats.Stats(profiler, stream=file).sort_stats("tottime").print_stats(_PROFILE_LINES)
    return result
