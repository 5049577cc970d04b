"""``python -m tests.bench.daemon_targets`` measures the targets for CPU and memory of the daemon, and prints a table.

With ``--before DIRECTORY``, a checkout of an older version, that version is measured too, and the versions take turns.
Start, memory and changes come from ``tests.bench.weight``, the full sync and the bare commit from ``tests.bench``, and
latency from ``tests.cluster.churn``; its value before is that of this version with kube-proxy's default interval.
The command fails if a target is missed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from tests.bench.machine import describe, load_at_end
from tests.bench.record import BARE, FULL, KNFT
from tests.bench.results import Results
from tests.bench.task_clocks import require_task_clocks
from tests.bench.weight import MeasuredCluster, Weight, WeightPlan, measure_in_turn
from tests.cluster.churn.run import DEFAULT
from tests.support.privilege import PrivilegeError, ensure_namespaces

BEFORE, AFTER = "before", "after"
OWN_TREE = Path(__file__).resolve().parents[2]
START_BEYOND_COMMITS_S, COMMITS_OF_START = 0.8, 1.5
KUBE_PROXY_INTERVAL = "1s"


class MeasuredTarget(Struct, frozen=True):
    """The values of all runs of both versions and the limit of the median, in one unit; without a limit None."""

    label: str
    cluster: str
    before: Sequence[float]
    after: Sequence[float]
    limit: float | None

    @property
    def is_missed(self) -> bool:
        """Whether the median is above the limit."""
        return bool(self.after) and self.limit is not None and median(self.after) > self.limit

    def __str__(self) -> str:
        """Return a row of the table: medians, the range of several runs, the limit, and whether it is missed."""
        medians = (median(runs) if runs else None for runs in (self.before, self.after))
        spread = (min(self.after), max(self.after)) if len(self.after) > 1 else (None, None)
        values = map(_text, (*medians, *spread, self.limit))
        return f"| {self.label} | {self.cluster} | {' | '.join(values)} | {'**missed**' if self.is_missed else ''} |"


class WeightTargets(Struct, frozen=True):
    """A cluster, how it is measured, and the limits by the name of the value in ``Weight``."""

    cluster: MeasuredCluster
    plan: WeightPlan
    limits: Mapping[str, float | None]


LABELS = {
    "start_cpu_s": "start until rules are in force: CPU, s",
    "peak_mib": "largest memory during the start, MiB",
    "settled_mib": "memory after the start, MiB",
    "changed_mib": "memory after all changes, MiB",
    "resident_mib": "resident memory after all changes, MiB",
    "to_commit_cpu_ms": "endpoint replaced, from its bytes to the commit: CPU, ms",
    "change_cpu_ms": "endpoint replaced, all that follows: CPU, ms",
    "bulk_cpu_ms": "each of 200 endpoints replaced together: CPU, ms",
}
_CHANGE_MS, _BULK_MS, _STICKY_CHANGE_MS = 1.5, 0.4, 30.0
# A virtual core can take twice as long for the same work for some seconds (docs/performance.md#runs).
_OFTEN = WeightPlan(runs=5, seconds=2.0)
_ONCE = WeightPlan(runs=1, seconds=2.0)
_ONCE_WITH_PEAK = WeightPlan(runs=1, seconds=2.0, samples_memory=True)
WEIGHT_TARGETS = (
    WeightTargets(
        MeasuredCluster(100),
        _OFTEN,
        {"start_cpu_s": 0.5, "settled_mib": 55, "changed_mib": 55, "resident_mib": None},
    ),
    WeightTargets(
        MeasuredCluster(1000),
        _OFTEN,
        {
            "start_cpu_s": 0.8,
            "settled_mib": 65,
            "changed_mib": 65,
            "resident_mib": None,
            "to_commit_cpu_ms": _CHANGE_MS,
            "change_cpu_ms": None,
            "bulk_cpu_ms": _BULK_MS,
        },
    ),
    WeightTargets(
        MeasuredCluster(10_000),
        _OFTEN,
        {
            "settled_mib": 150,
            "changed_mib": 150,
            "resident_mib": None,
            "to_commit_cpu_ms": _CHANGE_MS,
            "change_cpu_ms": None,
            "bulk_cpu_ms": _BULK_MS,
        },
    ),
    WeightTargets(MeasuredCluster(25_000), _ONCE, {"start_cpu_s": 10}),
    WeightTargets(
        MeasuredCluster(2000, 20, sticky=True), _ONCE_WITH_PEAK, {"start_cpu_s": 8, "peak_mib": 200, "changed_mib": 200}
    ),
    WeightTargets(MeasuredCluster(10_000, sticky=True), _ONCE, {"start_cpu_s": 20, "change_cpu_ms": _STICKY_CHANGE_MS}),
)
FULL_SYNC_SHAPES, FULL_SYNC_LIMIT = ("1000x10", "10000x10"), 1.3
FULL_SYNC_ROUNDS, FULL_SYNC_CHANGES = 5, 2
"""How often the versions take turns, with three full syncs and bare commits each time, and changes of each kind."""
LATENCY_LIMITS_MS = {10: None, 100: 50.0, 1000: 150.0}
QUICK_TARGETS = (
    WeightTargets(MeasuredCluster(20, 3), WeightPlan(1, 2, 0.1, samples_memory=True), dict.fromkeys(LABELS)),
)
QUICK_SHAPES = ("20x3", "60x3")


def main() -> None:
    """Measure, and print each row when it is known."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.daemon_targets", description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of an older version")
    parser.add_argument(
        "--quick", action="store_true", help="tiny clusters without latency, to check that everything works"
    )
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
        require_task_clocks()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    trees = {BEFORE: arguments.before.resolve()} if arguments.before else {}
    print("\n".join(f"{name}: {value}" for name, value in describe().items()))
    columns = ("", "cluster", "before", "after", "after, lowest", "after, highest", "target", "")
    print(f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|", sep="\n", flush=True)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="knft-targets-") as folder:
        for row in _rows(trees | {AFTER: OWN_TREE}, Path(folder), is_quick=arguments.quick):
            print(row, flush=True)
            missed += row.is_missed
    print("\n".join(f"{name}: {value}" for name, value in load_at_end().items()))
    sys.exit(f"bench: targets missed: {missed}" if missed else 0)


def _rows(trees: Mapping[str, Path], folder: Path, *, is_quick: bool) -> Iterator[MeasuredTarget]:
    bare_commit_s, full_syncs = _full_syncs(trees, folder, is_quick=is_quick)
    programs = {name: _program(tree, folder / name) for name, tree in trees.items()}
    for targets in QUICK_TARGETS if is_quick else WEIGHT_TARGETS:
        found = measure_in_turn(tuple(programs.values()), targets.cluster, targets.plan)
        weights = {name: found[program] for name, program in programs.items()}
        yield from _weight_rows(targets, weights)
        if targets.cluster == MeasuredCluster(10_000):
            limit = START_BEYOND_COMMITS_S + COMMITS_OF_START * bare_commit_s
            yield _row("start_cpu_s", targets.cluster, weights, limit)
    yield from full_syncs
    if not is_quick:
        yield from _latencies(folder)


def _weight_rows(targets: WeightTargets, weights: Mapping[str, Sequence[Weight]]) -> Iterable[MeasuredTarget]:
    return (_row(name, targets.cluster, weights, limit) for name, limit in targets.limits.items())


def _row(
    name: str, cluster: MeasuredCluster, weights: Mapping[str, Sequence[Weight]], limit: float | None
) -> MeasuredTarget:
    before, after = ([getattr(each, name) for each in weights.get(version, ())] for version in (BEFORE, AFTER))
    size = f"{cluster.services}x{cluster.endpoints}{', sticky' if cluster.sticky else ''}"
    return MeasuredTarget(LABELS[name], size, before, after, limit)


def _program(tree: Path, file: Path) -> str:
    """Write a script that runs the tree's knft, and return its path."""
    path = shlex.quote(os.pathsep.join((str(tree), str(tree / "compat"))))
    file.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} -P -m knft "$@"\n')
    file.chmod(0o755)
    return str(file)


def _full_syncs(trees: Mapping[str, Path], folder: Path, *, is_quick: bool) -> tuple[float, list[MeasuredTarget]]:
    """Return the CPU time of the bare commit of the last cluster, and the full syncs relative to commits.

    The bare commit is one transaction in JSON, also with the chains, which knft sends as text: libnftables takes longer
    for JSON. So the full sync is compared with libnftables' own part of it, too.
    """
    shapes = QUICK_SHAPES if is_quick else FULL_SYNC_SHAPES
    flags = ["--quick"] if is_quick else []
    rounds: dict[str, list[Results]] = {name: [] for name in trees}
    for _ in range(1 if is_quick else FULL_SYNC_ROUNDS):
        for name, tree in trees.items():
            rounds[name].append(_bench_results(tree, folder / f"{name}-full", "--sizes", *shapes, *flags))
    rows = [
        MeasuredTarget(
            f"full sync: CPU, times that of {label}",
            shape,
            list(_relative_to(rounds.get(BEFORE, ()), shape, divisor)),
            list(_relative_to(rounds[AFTER], shape, divisor)),
            limit,
        )
        for label, divisor, limit in (
            ("the bare commit", (BARE, "cpu_s"), None if is_quick else FULL_SYNC_LIMIT),
            ("libnftables and the kernel in it", (KNFT, "library_cpu_s"), None),
        )
        for shape in shapes
    ]
    bare_commits = [result.value(BARE, shapes[-1], FULL, "cpu_s") for result in rounds[AFTER]]
    if None in bare_commits:
        sys.exit("bench: the bare commit was not measured")
    return median(filter(None, bare_commits)), rows


def _bench_results(tree: Path, folder: Path, *flags: str) -> Results:
    command = [sys.executable, "-m", "tests.bench", "--only", KNFT, BARE, *flags]
    _run([*command, f"--syncs={FULL_SYNC_CHANGES}", "--results", str(folder)], tree)
    return msgspec.json.decode((folder / "results.json").read_bytes(), type=Results)


def _relative_to(rounds: Sequence[Results], shape: str, divisor: tuple[str, str]) -> Iterator[float]:
    """Yield the ratio of each round in which both values were measured."""
    for result in rounds:
        own, other = result.value(KNFT, shape, FULL, "cpu_s"), result.value(divisor[0], shape, FULL, divisor[1])
        if own and other:
            yield own / other


def _latencies(folder: Path) -> Iterator[MeasuredTarget]:
    """Yield the latencies of updates that are spread evenly, and of updates that all writers send at the same time."""
    for flags, description in (((), "spread evenly"), (("--together",), "eight updates at once")):
        for rate, limit in LATENCY_LIMITS_MS.items():
            command = [sys.executable, "-m", "tests.cluster.churn", "--changes", str(rate), "--results", str(folder)]
            _run([*command, *flags, "--intervals", KUBE_PROXY_INTERVAL, DEFAULT], OWN_TREE)
            runs = msgspec.json.decode((folder / "churn.json").read_bytes())["runs"]
            before, after = (each["latency"]["p99"] * 1e3 for each in runs)
            label = f"change in force at {rate} changes a second, {description}, p99, ms"
            yield MeasuredTarget(label, "1000x10", [before], [after], limit)


def _run(command: list[str], tree: Path) -> None:
    """Run a benchmark of a tree; its output goes to standard error."""
    path = os.pathsep.join((str(tree), str(tree / "compat")))
    environment = dict(os.environ, PYTHONPATH=path)
    subprocess.run(command, cwd=tree, env=environment, stdout=sys.stderr, check=True)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
