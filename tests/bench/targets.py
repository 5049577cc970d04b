"""knft's performance targets: ratios of one run where two of its values can be compared. They are reported only."""

from collections.abc import Iterator

from msgspec import Struct

from tests.bench.changes import ANOTHER_REPLACED
from tests.bench.latency import FIRST_SERVICE, LAST_SERVICE
from tests.bench.record import BARE, FULL, KNFT, MEMORY
from tests.bench.results import Results
from tests.bench.shapes import WIDE

_PEER = "kube-proxy 1.36"
_SMALL, _MIDDLE, _LARGE = "1000x10", "10000x10", "30000x5"
_STICKY_LIMITS_MS = {"sticky 1000x10": 20.0, "sticky 10000x10": 30.0}
_REPLACED = "endpoint replaced"
_OTHER_CHANGES = ("Service added", "scaled by one")
_TIMES = "times"
# Measurements of two frontends with the same rules differ by up to 10 %.
_NOISE_RATIO = 1.1
_Where = tuple[str, str, str]


class PerformanceTarget(Struct, frozen=True):
    """A value and its limit, in the same unit; None if the run has not measured it.

    ``cpu_time_ratio`` is the ratio of CPU times, which is more reliable on a busy machine.
    """

    label: str
    figure: float | None
    limit: float
    unit: str
    cpu_time_ratio: float | None = None

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        return "met" if self.figure <= self.limit else "missed"


def targets(results: Results) -> Iterator[PerformanceTarget]:
    """Yield all targets with the values of this run."""
    yield from _full_sync(results)
    yield from _changes(results)
    yield from _beside_wide(results)
    yield PerformanceTarget("settled memory", results.value(KNFT, _MIDDLE, MEMORY, "resident_mib"), 200.0, "MiB")
    for label in (FIRST_SERVICE, LAST_SERVICE):
        own = (KNFT, _SMALL, label)
        peer, large = (_PEER, _SMALL, label), (KNFT, _LARGE, label)
        yield _ratio(results, f"{label}, p50 at {_SMALL}, of the 1.36 layout's", (own, peer), ("p50_us", ""), 1.0)
        yield _ratio(
            results, f"{label}, p50 at {_LARGE}, of that at {_SMALL}", (large, own), ("p50_us", ""), _NOISE_RATIO
        )


def _full_sync(results: Results) -> Iterator[PerformanceTarget]:
    own = (KNFT, _MIDDLE, FULL)
    for label, other, limit in (("loading the 1.36 layout", _PEER, 0.2), ("the bare commit", BARE, 2.0)):
        pair = (own, (other, _MIDDLE, FULL))
        yield _ratio(results, f"full sync, of {label}", pair, ("total_s", "cpu_s"), limit)


def _changes(results: Results) -> Iterator[PerformanceTarget]:
    pair = ((KNFT, _MIDDLE, _REPLACED), (_PEER, _MIDDLE, _REPLACED))
    yield _ratio(results, f"{_REPLACED}, p50, of the 1.36 layout's", pair, ("p50_ms", "cpu_ms"), 0.02)
    pair = ((KNFT, _LARGE, _REPLACED), (KNFT, _SMALL, _REPLACED))
    label = f"{_REPLACED}, p99 at {_LARGE}, of that at {_SMALL}"
    yield _ratio(results, label, pair, ("p99_ms", "cpu_p99_ms"), 2.0)
    for kind in _OTHER_CHANGES:
        yield _at_most(results, f"{kind}, p99 at {_LARGE}", (KNFT, _LARGE, kind), 5.0)
    for shape, limit_ms in _STICKY_LIMITS_MS.items():
        for kind in (_REPLACED, *_OTHER_CHANGES):
            yield _at_most(results, f"{kind}, p99, {shape}", (KNFT, shape, kind), limit_ms)


def _beside_wide(results: Results) -> Iterator[PerformanceTarget]:
    """Yield what a wide Service costs other Services; changes are compared by CPU time."""
    for shape in WIDE:
        pair = ((KNFT, shape.name, ANOTHER_REPLACED), (KNFT, _SMALL, _REPLACED))
        label = f"{ANOTHER_REPLACED}, CPU at {shape.name}, of {_REPLACED} at {_SMALL}"
        yield _ratio(results, label, pair, ("cpu_ms", ""), 2.0)
        own, other = (results.value(KNFT, name, MEMORY, "resident_mib") for name in (shape.name, _SMALL))
        growth = own - other if own is not None and other is not None else None
        yield PerformanceTarget(f"settled memory at {shape.name}, above that at {_SMALL}", growth, 60.0, "MiB")


def _at_most(results: Results, label: str, where: _Where, limit: float) -> PerformanceTarget:
    return PerformanceTarget(label, results.value(*where, "p99_ms"), limit, "ms", results.value(*where, "cpu_p99_ms"))


def _ratio(
    results: Results, label: str, pair: tuple[_Where, _Where], names: tuple[str, str], limit: float
) -> PerformanceTarget:
    """Return the ratio of two values, by the clock and by CPU time."""
    figure, in_cpu = (_divided(*(results.value(*where, name) for where in pair)) for name in names)
    return PerformanceTarget(label, figure, limit, _TIMES, in_cpu)


def _divided(own: float | None, other: float | None) -> float | None:
    return own / other if own is not None and other else None
