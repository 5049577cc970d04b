"""Measures knft: a full sync, changes, memory; and the bare commit of the same transaction."""

import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from knft.kernel.libnftables import Library
from knft.model.objects import KubeObject, ObjectChange
from tests.bench.changes import KINDS, steps
from tests.bench.cluster import Cluster, Shape
from tests.bench.manifests import changes, first_changes
from tests.bench.measure import kernel_kib, peak_mib, percentile, reset_peak, resident_mib, trimmed_mib
from tests.bench.record import BARE, FULL, KNFT, MEMORY, Record, emit
from tests.bench.timed_knft import SyncTimes, TimedKnft, TimedLibrary, bare_commit

_PROFILED_LINES = 30
Result = TypeVar("Result")


def measure_knft(shape: Shape, syncs: int, patience: float, profile: str = "") -> None:
    """Sync everything, then so many changes of each kind; without any, only the full sync is measured."""
    kernel_before = kernel_kib(patience) if syncs else 0
    product, cluster, held = TimedKnft(), Cluster(shape), _Held()
    first = list(first_changes(cluster))
    held.note(first)
    gc.collect()
    reset_peak()
    before = resident_mib()
    taken = _profiled(lambda: product.sync(first), profile, "full")
    values = {
        "total_s": taken.seconds,
        "tracked_s": taken.tracked,
        "library_s": taken.libnftables,
        "collector_s": taken.collector,
        "cpu_s": taken.cpu,
        "before_mib": before,
        "resident_mib": resident_mib(),
        "peak_mib": peak_mib(),
    }
    emit(Record(KNFT, shape.name, FULL, values))
    # What is replaced from here on is nobody's any more.
    first.clear()
    if syncs:
        kernel = kernel_kib(patience) - kernel_before
        for kind in KINDS:
            _measure_changes(product, cluster, held, (kind, syncs), profile)
        _emit_memory(product.libnftables, shape, kernel, patience)


def _measure_changes(
    product: TimedKnft, cluster: Cluster, held: "_Held", wanted: tuple[str, int], profile: str
) -> None:
    kind, syncs = wanted
    reset_peak()
    taken: list[SyncTimes] = []

    def run() -> None:
        for step in steps(cluster, kind, syncs):
            news = list(changes(step))
            taken.append(product.sync(news))
            held.note(news)

    _profiled(run, profile, kind)
    seconds = [item.seconds for item in taken]
    values = {
        "p50_ms": percentile(seconds, 0.5) * 1e3,
        "p99_ms": percentile(seconds, 0.99) * 1e3,
        "max_ms": max(seconds) * 1e3,
        "library_share": sum(item.libnftables for item in taken) / sum(seconds),
        "library_p50_ms": percentile([item.libnftables for item in taken], 0.5) * 1e3,
        "collector_share": sum(item.collector for item in taken) / sum(seconds),
        "collector_max_ms": max(item.collector for item in taken) * 1e3,
        "cpu_p99_ms": percentile([item.cpu for item in taken], 0.99) * 1e3,
        "cpu_ms": sum(item.cpu for item in taken) / len(taken) * 1e3,
        "syncs": float(len(taken)),
        "resident_mib": resident_mib(),
        "peak_mib": peak_mib(),
    }
    emit(Record(KNFT, cluster.shape.name, kind, values))


def _emit_memory(library: TimedLibrary, shape: Shape, kernel_rise: int, patience: float) -> None:
    """Report what is held when all is done; kernel memory is also what deleting the table gives back."""
    resident = resident_mib()
    loaded = kernel_kib(patience)
    library.run("delete table ip knft")
    library.run("delete table ip6 knft")
    values = {
        "resident_mib": resident + library.resident_mib(),
        "library_mib": library.resident_mib(),
        "trimmed_mib": trimmed_mib(),
        "kernel_rise_mib": kernel_rise / 1024,
        "kernel_mib": (loaded - kernel_kib(patience)) / 1024,
    }
    emit(Record(KNFT, shape.name, MEMORY, values))


def measure_bare_commit(shape: Shape) -> None:
    """Hand libnftables what a first sync of IPv4 sends, rendered and serialised before."""
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


class _Held:
    """The decoded objects as they are now, which whoever feeds knft holds."""

    def __init__(self) -> None:
        self._objects: dict[tuple[type, str], KubeObject] = {}

    def note(self, news: list[ObjectChange]) -> None:
        for change in news:
            found = change.current or change.previous
            if found is None:
                continue
            key = (type(found), found.metadata.name)
            self._objects.pop(key, None)
            if change.current is not None:
                self._objects[key] = change.current


def _profiled(work: Callable[[], Result], folder: str, name: str) -> Result:
    """Do the work; with a folder, write its profile there."""
    if not folder:
        return work()
    profiler = cProfile.Profile()
    result = profiler.runcall(work)
    with Path(folder, f"profile-{name.replace(' ', '-')}.txt").open("w") as file:
        pstats.Stats(profiler, stream=file).sort_stats("tottime").print_stats(_PROFILED_LINES)
    return result
