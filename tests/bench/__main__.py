"""``python -m tests.bench`` runs the cases one after the other, and writes JSON, a table and a plot.

If the run is interrupted, it still writes all results so far.
"""

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from tests.bench.case import Case
from tests.bench.case_list import FULL_RUN, QUICK_RUN, RunPlan, cases
from tests.bench.machine import describe, load_at_end
from tests.bench.peers.registry import PEERS
from tests.bench.plot import can_plot, plot
from tests.bench.record import BARE, ENDED, KNFT, LATENCY, Record
from tests.bench.results import RESULTS_FOLDER, Results
from tests.bench.table import markdown
from tests.support.privilege import PrivilegeError, ensure_namespaces

CASE_SECONDS = 1800.0
"""Time limit of a case."""


def main() -> None:
    """Run the cases that the command line selects."""
    arguments = _parser().parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    run_plan = _run_plan(arguments)
    arguments.results.mkdir(parents=True, exist_ok=True)
    machine = describe()
    records: list[Record] = []
    try:
        for case in cases(run_plan, arguments.only or (), str(arguments.results) if arguments.profile else ""):
            records += _run(case)
            _write_json(Results(machine, tuple(records)), arguments.results)
    except KeyboardInterrupt:
        _write_all(Results(machine | load_at_end(), tuple(records)), run_plan, arguments.results)
        print("bench: interrupted; the results so far are written", flush=True)
        sys.exit(130)
    _write_all(Results(machine | load_at_end(), tuple(records)), run_plan, arguments.results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny clusters, to check that everything works (two minutes)"
    )
    parser.add_argument("--sizes", nargs="+", metavar="NAME", help="only clusters with these names, such as 1000x10")
    parser.add_argument(
        "--only", nargs="+", choices=[KNFT, BARE, LATENCY, *PEERS], help="only these proxies and measurements"
    )
    parser.add_argument("--syncs", type=int, help="number of syncs of each kind of change")
    parser.add_argument("--profile", action="store_true", help="profile knft too, in separate runs")
    parser.add_argument("--results", type=Path, default=RESULTS_FOLDER, help="directory for the results")
    return parser


def _run_plan(arguments: argparse.Namespace) -> RunPlan:
    run_plan = QUICK_RUN if arguments.quick else FULL_RUN
    if arguments.syncs:
        run_plan = structs.replace(run_plan, syncs=arguments.syncs)
    if arguments.sizes:
        chosen = tuple(shape for shape in run_plan.shapes if shape.name in arguments.sizes)
        if not chosen:
            sys.exit(f"bench: unknown cluster; known are {[shape.name for shape in run_plan.shapes]}")
        run_plan = structs.replace(run_plan, shapes=chosen)
    return run_plan


def _run(case: Case) -> Iterator[Record]:
    """Run a case in its own process, and yield its records as they arrive."""
    print(f"bench: {case.proxy}, {case.shape.name}", end="", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "tests.bench.case", msgspec.json.encode(case).decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        limit = threading.Timer(CASE_SECONDS, process.kill)
        limit.start()
        try:
            for line in process.stdout or ():
                record = msgspec.json.decode(line, type=Record)
                # A profiled run is slower, so its records are not reported.
                if not case.profile:
                    yield record
        finally:
            limit.cancel()
            process.kill()
    if process.returncode not in (0, -9):
        yield Record(case.proxy, case.shape.name, ENDED, note=f"ended with status {process.returncode}")
    print(f": {time.monotonic() - started:.0f} s", flush=True)


def _write_json(results: Results, folder: Path) -> None:
    (folder / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def _write_all(results: Results, run_plan: RunPlan, folder: Path) -> None:
    _write_json(results, folder)
    table = markdown(results)
    (folder / "table.md").write_text(table)
    print(table)
    if can_plot():
        plot(results, folder / "plot.png", {shape.name: shape.services for shape in run_plan.shapes if shape.is_plain})
    else:
        print("bench: no plot without matplotlib (pip install '.[bench]')")
    print(f"bench: written to {folder}")


if __name__ == "__main__":
    main()
