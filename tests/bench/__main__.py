"""``python -m tests.bench``: runs the cases one after the other, and writes JSON, a table and a plot.

What was measured before an interruption is written too.
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
from tests.bench.results import Results
from tests.bench.table import markdown
from tests.support.privilege import PrivilegeError, ensure_namespaces

RESULTS = Path(__file__).with_name("results")
CASE_SECONDS = 1800.0
"""When a case counts as hung."""


def main() -> None:
    """Run what the command line asks for."""
    wanted = _parser().parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    extent = _extent(wanted)
    wanted.results.mkdir(parents=True, exist_ok=True)
    machine = describe()
    records: list[Record] = []
    try:
        for case in cases(extent, wanted.only or (), str(wanted.results) if wanted.profile else ""):
            records += _run(case)
            _write_json(Results(machine, tuple(records)), wanted.results)
    except KeyboardInterrupt:
        _write_all(Results(machine | load_at_end(), tuple(records)), extent, wanted.results)
        print("bench: interrupted; what there is is written", flush=True)
        sys.exit(130)
    _write_all(Results(machine | load_at_end(), tuple(records)), extent, wanted.results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny clusters: does everything work? (two minutes)")
    parser.add_argument("--sizes", nargs="+", metavar="NAME", help="only these clusters, such as 1000x10")
    parser.add_argument("--only", nargs="+", choices=[KNFT, BARE, LATENCY, *PEERS], help="only these")
    parser.add_argument("--syncs", type=int, help="how many syncs of each kind of change")
    parser.add_argument("--profile", action="store_true", help="profile knft too, in runs of their own")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where to write")
    return parser


def _extent(wanted: argparse.Namespace) -> RunPlan:
    extent = QUICK_RUN if wanted.quick else FULL_RUN
    if wanted.syncs:
        extent = structs.replace(extent, syncs=wanted.syncs)
    if wanted.sizes:
        chosen = tuple(shape for shape in extent.shapes if shape.name in wanted.sizes)
        if not chosen:
            sys.exit(f"bench: there is none of these clusters; there are {[shape.name for shape in extent.shapes]}")
        extent = structs.replace(extent, shapes=chosen)
    return extent


def _run(case: Case) -> Iterator[Record]:
    """Measure a case in a process of its own, and yield its records as they come."""
    print(f"bench: {case.proxy}, {case.shape.name}", end="", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "tests.bench.case", msgspec.json.encode(case).decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        limit = threading.Timer(CASE_SECONDS, process.kill)
        limit.start()
        try:
            for line in process.stdout or ():
                record = msgspec.json.decode(line, type=Record)
                # A profiled run is slower; its figures would be mistaken for others.
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


def _write_all(results: Results, extent: RunPlan, folder: Path) -> None:
    _write_json(results, folder)
    table = markdown(results)
    (folder / "table.md").write_text(table)
    print(table)
    if can_plot():
        plot(results, folder / "plot.png", {shape.name: shape.services for shape in extent.shapes if shape.is_plain})
    else:
        print("bench: no plot without matplotlib (pip install '.[bench]')")
    print(f"bench: written to {folder}")


if __name__ == "__main__":
    main()
