"""``python -m tests.bench.daemon_targets`` measures the targets of the daemon's weight in one run, and prints a table.

With ``--before DIRECTORY``, a checkout of an older version, that version is measured too, in turn with this one. Start,
memory and changes come from ``tests.bench.weight``, the full sync and the bare commit from ``tests.bench``, and latency
from ``tests.cluster.churn``, with kube-proxy's default interval as the value before.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.bench.machine import describe, load_at_end
from tests.bench.record import BARE, FULL, KNFT
from tests.bench.results import Results
from tests.bench.weight import MeasuredCluster, Weight, WeightPlan, median_weights
from tests.cluster.churn.run import DEFAULT
from tests.support.privilege import PrivilegeError, ensure_namespaces

BEFORE, AFTER = "before", "after"
OWN_TREE = Path(__file__).resolve().parents[2]
START_BEYOND_COMMITS_S, COMMITS_OF_START = 0.8, 1.5
KUBE_PROXY_INTERVAL = "1s"


class MeasuredTarget(Struct, frozen=True):
    """A value of both versions and its limit, in one unit; None for what was not measured."""

    label: str
    cluster: str
    before: float | None
    after: float | None
    limit: float

    def __str__(self) -> str:
        """Return a row of the table."""
        verdict = "" if self.after is None else "met" if self.after <= self.limit else "**missed**"
        values = (_text(self.before), _text(self.after), f"{self.limit:.3g}")
        return f"| {self.label} | {self.cluster} | {' | '.join(values)} | {verdict} |"


class WeightTargets(Struct, frozen=True):
    """A cluster, how it is measured, and the limits by the name of the value in ``Weight``."""

    cluster: MeasuredCluster
    plan: WeightPlan
    limits: Mapping[str, float]


LABELS = {
    "start_cpu_s": "start until rules are in force: CPU, s",
    "settled_mib": "memory after the start, MiB",
    "changed_mib": "memory after all changes, MiB",
    "to_commit_cpu_ms": "endpoint replaced, from its bytes to the commit: CPU, ms",
    "change_cpu_ms": "endpoint replaced, all that follows: CPU, ms",
    "bulk_cpu_ms": "each of 200 endpoints replaced together: CPU, ms",
}
_CHANGE_MS, _BULK_MS, _STICKY_CHANGE_MS = 1.5, 0.4, 30.0
_ONCE = WeightPlan(runs=1, seconds=2.0)
WEIGHT_TARGETS = (
    WeightTargets(MeasuredCluster(100), WeightPlan(), {"start_cpu_s": 0.5, "settled_mib": 55, "changed_mib": 55}),
    WeightTargets(
        MeasuredCluster(1000),
        WeightPlan(),
        {
            "start_cpu_s": 0.8,
            "settled_mib": 65,
            "changed_mib": 65,
            "to_commit_cpu_ms": _CHANGE_MS,
            "change_cpu_ms": _CHANGE_MS,
            "bulk_cpu_ms": _BULK_MS,
        },
    ),
    WeightTargets(
        MeasuredCluster(10_000),
        WeightPlan(),
        {
            "settled_mib": 150,
            "changed_mib": 150,
            "to_commit_cpu_ms": _CHANGE_MS,
            "change_cpu_ms": _CHANGE_MS,
            "bulk_cpu_ms": _BULK_MS,
        },
    ),
    WeightTargets(MeasuredCluster(25_000), _ONCE, {"start_cpu_s": 10}),
    WeightTargets(MeasuredCluster(2000, 20, sticky=True), _ONCE, {"start_cpu_s": 8, "changed_mib": 200}),
    WeightTargets(MeasuredCluster(10_000, sticky=True), _ONCE, {"start_cpu_s": 20, "change_cpu_ms": _STICKY_CHANGE_MS}),
)
FULL_SYNC_SHAPES, FULL_SYNC_LIMIT = ("1000x10", "10000x10"), 1.3
LATENCY_LIMITS_MS = {100: 50.0, 1000: 150.0}


def main() -> None:
    """Measure, and print the rows as they are known."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.daemon_targets", description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of an older version")
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    trees = {BEFORE: arguments.before.resolve()} if arguments.before else {}
    print("\n".join(f"{name}: {value}" for name, value in describe().items()))
    print("| | cluster | before | after | target | |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(prefix="knft-targets-") as folder:
        for row in _rows(trees | {AFTER: OWN_TREE}, Path(folder)):
            print(row, flush=True)
    print("\n".join(f"{name}: {value}" for name, value in load_at_end().items()))


def _rows(trees: Mapping[str, Path], folder: Path) -> Iterator[MeasuredTarget]:
    bare_commit_s, full_syncs = _full_syncs(trees, folder)
    programs = {name: _program(tree, folder / name) for name, tree in trees.items()}
    for targets in WEIGHT_TARGETS:
        found = median_weights(tuple(programs.values()), targets.cluster, targets.plan)
        weights = {name: found[program] for name, program in programs.items()}
        yield from _weight_rows(targets, weights)
        if targets.cluster == MeasuredCluster(10_000):
            limit = START_BEYOND_COMMITS_S + COMMITS_OF_START * bare_commit_s
            yield _row("start_cpu_s", targets.cluster, weights, limit)
    yield from full_syncs
    yield from _latencies(folder)


def _weight_rows(targets: WeightTargets, weights: Mapping[str, Weight]) -> Iterable[MeasuredTarget]:
    return (_row(name, targets.cluster, weights, limit) for name, limit in targets.limits.items())


def _row(name: str, cluster: MeasuredCluster, weights: Mapping[str, Weight], limit: float) -> MeasuredTarget:
    before, after = (getattr(weights.get(version), name, None) for version in (BEFORE, AFTER))
    size = f"{cluster.services}x{cluster.endpoints}{', sticky' if cluster.sticky else ''}"
    return MeasuredTarget(LABELS[name], size, before, after, limit)


def _program(tree: Path, file: Path) -> str:
    """Write a script that runs the tree's knft, and return its path."""
    path = shlex.quote(os.pathsep.join((str(tree), str(tree / "compat"))))
    file.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} -P -m knft "$@"\n')
    file.chmod(0o755)
    return str(file)


def _full_syncs(trees: Mapping[str, Path], folder: Path) -> tuple[float, list[MeasuredTarget]]:
    """Return the CPU time of the bare commit of the largest cluster, and all full syncs as multiples of theirs."""
    results = {}
    for name, tree in trees.items():
        command = [sys.executable, "-m", "tests.bench", "--only", KNFT, BARE, "--sizes", *FULL_SYNC_SHAPES]
        _run([*command, "--results", str(folder / f"{name}-full")], tree)
        results[name] = msgspec.json.decode((folder / f"{name}-full" / "results.json").read_bytes(), type=Results)
    rows = [
        MeasuredTarget(
            "full sync: CPU, times that of the bare commit",
            shape,
            _times_bare_commit(results.get(BEFORE), shape),
            _times_bare_commit(results.get(AFTER), shape),
            FULL_SYNC_LIMIT,
        )
        for shape in FULL_SYNC_SHAPES
    ]
    return results[AFTER].value(BARE, FULL_SYNC_SHAPES[-1], FULL, "cpu_s") or 0.0, rows


def _times_bare_commit(results: Results | None, shape: str) -> float | None:
    own, bare = (results.value(proxy, shape, FULL, "cpu_s") if results else None for proxy in (KNFT, BARE))
    return own / bare if own and bare else None


def _latencies(folder: Path) -> Iterator[MeasuredTarget]:
    for rate, limit in LATENCY_LIMITS_MS.items():
        command = [sys.executable, "-m", "tests.cluster.churn", "--changes", str(rate), "--results", str(folder)]
        _run([*command, "--intervals", KUBE_PROXY_INTERVAL, DEFAULT], OWN_TREE)
        runs = msgspec.json.decode((folder / "churn.json").read_bytes())["runs"]
        before, after = (each["latency"]["p99"] * 1e3 for each in runs)
        yield MeasuredTarget(f"change in force at {rate} changes a second, p99, ms", "1000x10", before, after, limit)


def _run(command: list[str], tree: Path) -> None:
    """Run a benchmark of a tree; its output goes to standard error."""
    path = os.pathsep.join((str(tree), str(tree / "compat")))
    environment = dict(os.environ, PYTHONPATH=path)
    subprocess.run(command, cwd=tree, env=environment, stdout=sys.stderr, check=True)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
