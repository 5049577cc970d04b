"""``python -m tests.cluster.churn``: measures at several rates of changes, with several minimum sync intervals."""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from deploy.programs.build import programs
from deploy.programs.errors import SetupError
from tests.bench.machine import describe, load_at_end
from tests.bench.results import RESULTS_FOLDER
from tests.cluster.churn.run import DEFAULT, ChurnParameters, ChurnResult, ChurnRun
from tests.support.privilege import PrivilegeError, ensure_namespaces

RATES = (10, 100, 1000)
INTERVALS = (DEFAULT, "1s", "0s")


def main() -> None:
    """Measure, print, and write ``churn.json``; fail if a change was lost or the tables are wrong."""
    arguments = _parser().parse_args()
    try:
        ensure_namespaces()
        release = programs().release
    except (PrivilegeError, SetupError) as problem:
        sys.exit(f"churn: {problem}")
    machine = describe() | {"Kubernetes": release}
    extents = [
        ChurnParameters(
            arguments.services,
            arguments.endpoints,
            rate,
            arguments.each,
            arguments.writers,
            arguments.seconds,
            arguments.together,
        )
        for rate in arguments.changes
    ]
    outcomes = [_measured(extent, interval) for extent in extents for interval in arguments.intervals]
    arguments.results.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine | load_at_end(), "runs": outcomes}
    (arguments.results / "churn.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    print(f"churn: written to {arguments.results / 'churn.json'}")
    sys.exit(any(outcome.wrong for outcome in outcomes))


def _measured(parameters: ChurnParameters, interval: str) -> ChurnResult:
    with (
        tempfile.TemporaryDirectory(prefix="knft-churn-") as folder,
        ChurnRun(Path(folder), parameters, interval) as run,
    ):
        outcome = run.measure()
    print("\n".join(_summary_lines(outcome)), flush=True)
    return outcome


def _summary_lines(outcome: ChurnResult) -> list[str]:
    latency, own, answered = outcome.latency, outcome.histogram, outcome.answered
    spread = "all writers at the same time" if outcome.parameters.together else "spread evenly"
    cores = ", ".join(f"{name} {cores:.2f}" for name, cores in outcome.cpu_cores.items())
    return [
        f"churn: minimum sync interval {outcome.interval}, {outcome.parameters.changes} changes a second wanted:",
        f"  {outcome.changes} changes, {outcome.changes_a_second:.0f}/s, {spread}",
        f"  programmed after p50 {latency['p50'] * 1e3:.0f} ms, p99 {latency['p99'] * 1e3:.0f} ms",
        f"  maximum {latency['longest'] * 1e3:.0f} ms; {outcome.superseded} were superseded first",
        f"  knft's histogram: p50 {own['p50'] * 1e3:.0f} ms, p99 {own['p99'] * 1e3:.0f} ms, of {own['count']:.0f}",
        f"  API server responses: p50 {answered['p50'] * 1e3:.1f} ms, p99 {answered['p99'] * 1e3:.1f} ms",
        f"  {outcome.syncs:.0f} syncs; cores: {cores}; knft {outcome.knft_mib:.0f} MiB",
        *([f"  WRONG: {line}" for line in outcome.wrong[:20]] or ["  no change lost, no difference"]),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.churn", description=__doc__)
    parser.add_argument("--services", type=int, default=1000, help="Services, each with one slice")
    parser.add_argument("--endpoints", type=int, default=10, help="endpoints of each Service")
    parser.add_argument("--changes", type=int, nargs="+", default=RATES, help="endpoint changes per second")
    parser.add_argument("--each", type=int, default=5, help="endpoint changes per update of a slice")
    parser.add_argument("--writers", type=int, default=8, help="number of writer processes")
    parser.add_argument("--together", action="store_true", help="all writers send an update at the same time")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of each measurement in seconds")
    parser.add_argument(
        "--intervals", nargs="+", default=INTERVALS, help=f"minimum sync intervals; {DEFAULT!r} for none that is given"
    )
    parser.add_argument("--results", type=Path, default=RESULTS_FOLDER, help="folder for churn.json")
    return parser


if __name__ == "__main__":
    main()
