"""What knft aims at, as ratios of one run wherever two figures of it can be compared. Reported, not asserted."""

from collections.abc import Iterator

from msgspec import Struct

from tests.bench.latency import FIRST, LAST
from tests.bench.record import BARE, FULL, KNFT, MEMORY
from tests.bench.results import Results

_PEER = "kube-proxy 1.36"
_SMALL, _MIDDLE, _LARGE, _STICKY = "1000x10", "10000x10", "30000x5", "sticky 1000x10"
_OTHER_CHANGES = ("Service added", "scaled by one")
_TIMES = "times"
# Two frontends behind the same rules differ by so much from run to run.
_FLAT = 1.1


class Target(Struct, frozen=True):
    """A figure and its limit, in the same unit; None where the run lacks what it takes."""

    words: str
    figure: float | None
    limit: float
    unit: str

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        return "met" if self.figure <= self.limit else "missed"


def targets(results: Results) -> Iterator[Target]:
    """Return every target with this run's figure."""
    find = results.value
    ratio = _Ratio(results)
    full = (KNFT, _MIDDLE, FULL, "total_s")
    yield Target(
        "full sync, of loading the 1.36 layout", ratio.of(full, (_PEER, _MIDDLE, FULL, "total_s")), 0.2, _TIMES
    )
    yield Target("full sync, of the bare commit", ratio.of(full, (BARE, _MIDDLE, FULL, "total_s")), 2.0, _TIMES)
    replaced = (KNFT, _MIDDLE, "endpoint replaced", "p50_ms")
    theirs = (_PEER, _MIDDLE, "endpoint replaced", "p50_ms")
    yield Target("endpoint replaced, p50, of the 1.36 layout's", ratio.of(replaced, theirs), 0.02, _TIMES)
    large, small = ((KNFT, size, "endpoint replaced", "p99_ms") for size in (_LARGE, _SMALL))
    yield Target(f"endpoint replaced, p99 at {_LARGE}, of that at {_SMALL}", ratio.of(large, small), 2.0, _TIMES)
    for kind in _OTHER_CHANGES:
        yield Target(f"{kind}, p99 at {_LARGE}", find(KNFT, _LARGE, kind, "p99_ms"), 5.0, "ms")
    for kind in ("endpoint replaced", *_OTHER_CHANGES):
        yield Target(f"{kind}, p99, {_STICKY}", find(KNFT, _STICKY, kind, "p99_ms"), 20.0, "ms")
    yield Target("settled memory", find(KNFT, _MIDDLE, MEMORY, "resident_mib"), 200.0, "MiB")
    for words in (FIRST, LAST):
        own, other = (KNFT, _SMALL, words, "p50_us"), (_PEER, _SMALL, words, "p50_us")
        yield Target(f"{words}, p50 at {_SMALL}, of the 1.36 layout's", ratio.of(own, other), 1.0, _TIMES)
        own, other = (KNFT, _LARGE, words, "p50_us"), (KNFT, _SMALL, words, "p50_us")
        yield Target(f"{words}, p50 at {_LARGE}, of that at {_SMALL}", ratio.of(own, other), _FLAT, _TIMES)


class _Ratio:
    def __init__(self, results: Results) -> None:
        self._results = results

    def of(self, own: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> float | None:
        """Return one figure divided by another."""
        first, second = self._results.value(*own), self._results.value(*other)
        return first / second if first is not None and second else None
