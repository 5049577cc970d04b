"""The results as Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from tests.bench.changes import KINDS
from tests.bench.latency import FIRST_SERVICE, LAST_SERVICE, WITHOUT_RULES
from tests.bench.peers.registry import PEERS
from tests.bench.record import BARE, FULL, KNFT, MEMORY
from tests.bench.results import Results
from tests.bench.targets import targets

_NOTHING = "-"

_FULL_PARTS = (
    ("total, s", "total_s"),
    ("handing over the events, s", "tracked_s"),
    ("libnftables and kernel, s", "library_s"),
    ("Python's garbage collector, s", "collector_s"),
    ("CPU, s", "cpu_s"),
)
_CHANGE_PARTS = (
    ("syncs", "syncs"),
    ("p50, ms", "p50_ms"),
    ("libnftables and kernel, p50, ms", "library_p50_ms"),
    ("their share of all time", "library_share"),
    ("CPU a change, ms", "cpu_ms"),
    ("its p99, ms", "cpu_p99_ms"),
    ("longest, ms", "max_ms"),
    ("longest collection, ms", "collector_max_ms"),
)
_RESIDENT = (
    ("with the objects", FULL, "before_mib"),
    ("after the full sync", FULL, "resident_mib"),
    ("its peak", FULL, "peak_mib"),
    ("settled, after all changes", MEMORY, "resident_mib"),
    ("of that needed, after malloc_trim", MEMORY, "trimmed_mib"),
)


def markdown(results: Results) -> str:
    """Return all tables for which the run has values."""
    sections = (_targets, _full, _full_parts, _changes, _change_cpu, _change_parts, _resident, _kernel, _latency)
    machine = "; ".join(f"{name}: {label}" for name, label in results.machine.items())
    return "\n".join((machine, "", *(line for section in sections for line in section(results))))


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, without rows that have no value; nothing if no row is left."""
    kept = [row for row in rows if any(cell != _NOTHING for cell in row[1:])]
    if kept:
        yield from (f"**{title}**", "", _row(columns), _row(["---"] * len(columns)), *map(_row, kept), "")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _targets(results: Results) -> Iterator[str]:
    rows = (
        [
            target.label,
            *map(_figure, (target.figure, target.cpu_time_ratio)),
            f"{target.limit:g}",
            target.unit,
            target.verdict,
        ]
        for target in targets(results)
        if target.figure is not None
    )
    return _table(
        "Targets (at 10000x10 where no size is named)", ["what", "here", "in CPU time", "at most", "", ""], rows
    )


def _full(results: Results) -> Iterator[str]:
    proxies = results.proxies((KNFT, BARE, *PEERS))
    rows = ([shape, *(_total(results, proxy, shape) for proxy in proxies)] for shape in results.shapes())
    return _table("Full sync, s (the median where repeated)", ["cluster", *proxies], rows)


def _total(results: Results, proxy: str, shape: str) -> str:
    value = results.value(proxy, shape, FULL, "total_s")
    return results.note(proxy, shape) or _NOTHING if value is None else _figure(value)


def _full_parts(results: Results) -> Iterator[str]:
    rows = (
        [shape, *(_figure(results.value(KNFT, shape, FULL, name)) for _, name in _FULL_PARTS)]
        for shape in results.shapes()
    )
    return _table("knft's full sync: where the time goes", ["cluster", *(label for label, _ in _FULL_PARTS)], rows)


def _changes(results: Results) -> Iterator[str]:
    proxies = results.proxies((KNFT, *PEERS))
    for kind in KINDS:
        rows = (
            [shape, *(_pair(results, (proxy, shape, kind), "ms") for proxy in proxies)] for shape in results.shapes()
        )
        yield from _table(f"{kind[0].upper()}{kind[1:]}: p50 / p99, ms", ["cluster", *proxies], rows)


def _change_cpu(results: Results) -> Iterator[str]:
    proxies = results.proxies((KNFT, *PEERS))
    rows = (
        [f"{shape}: {kind}", *(_figure(results.value(proxy, shape, kind, "cpu_ms")) for proxy in proxies)]
        for shape in results.shapes()
        for kind in KINDS
    )
    return _table("CPU of a change, ms (the mean)", ["change", *proxies], rows)


def _change_parts(results: Results) -> Iterator[str]:
    rows = (
        [f"{shape}: {kind}", *(_figure(results.value(KNFT, shape, kind, name)) for _, name in _CHANGE_PARTS)]
        for shape in results.shapes()
        for kind in KINDS
    )
    return _table("knft's changes: where the time goes", ["change", *(label for label, _ in _CHANGE_PARTS)], rows)


def _resident(results: Results) -> Iterator[str]:
    rows = (
        [shape, *(_figure(results.value(KNFT, shape, measure, name)) for _, measure, name in _RESIDENT)]
        for shape in results.shapes()
    )
    return _table("knft's resident memory, MiB", ["cluster", *(label for label, _, _ in _RESIDENT)], rows)


def _kernel(results: Results) -> Iterator[str]:
    proxies = results.proxies((KNFT, *PEERS))
    rows = (
        [shape, *(_figure(results.value(proxy, shape, MEMORY, "kernel_mib")) for proxy in proxies)]
        for shape in results.shapes()
    )
    return _table("Kernel memory that deleting the table gives back, MiB", ["cluster", *proxies], rows)


def _latency(results: Results) -> Iterator[str]:
    rows = (
        [f"{proxy}, {shape}", *(_pair(results, (proxy, shape, label), "us") for label in (FIRST_SERVICE, LAST_SERVICE))]
        for proxy in (WITHOUT_RULES, KNFT, *PEERS)
        for shape in results.shapes()
    )
    columns = ["rules", "to the first Service", "to the last Service"]
    return _table("A new TCP connection through the node: p50 / p99, µs", columns, rows)


def _pair(results: Results, what: tuple[str, str, str], unit: str) -> str:
    values = [results.value(*what, f"{name}_{unit}") for name in ("p50", "p99")]
    return _NOTHING if None in values else " / ".join(map(_figure, values))


def _figure(value: float | None) -> str:
    """Return a value with three significant digits."""
    if value is None:
        return _NOTHING
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
