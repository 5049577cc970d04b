"""``python -m tests.cluster.bench`` measures all proxies at all sizes, and writes JSON, a table and a plot.

If the run is interrupted, it still writes all results so far. If a connection fails, the proxy's further measurements
are left out, and the conntrack entries and rules are written beside the results. The run fails if that was knft's
connection, or if knft ended or took too long.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import structs

from deploy.programs.build import programs
from deploy.programs.errors import SetupError
from tests.bench.machine import describe, load_at_end
from tests.bench.plot import can_plot
from tests.bench.record import Record
from tests.bench.results import RESULTS_FOLDER, Results
from tests.cluster.bench.document import RESULTS_FILE
from tests.cluster.bench.measure_proxy import ProxyMeasurement
from tests.cluster.bench.plot import plot
from tests.cluster.bench.proxies import PROXIES
from tests.cluster.bench.proxy_names import KNFT, default_proxies
from tests.cluster.bench.sizes import QUICK, BenchPlan, Size, size_named
from tests.cluster.bench.table import markdown
from tests.cluster.bench.testbed import testbed
from tests.support.privilege import PrivilegeError, ensure_namespaces

DEFAULT_SIZES, QUICK_SIZES = ("100x10", "1000x10"), ("20x3",)
_PROXY_CHOICES = {name.split()[-1]: name for name in PROXIES}


def main() -> None:
    """Measure what the command line selects."""
    arguments = _parser().parse_args()
    try:
        ensure_namespaces()
        release = programs().release
        sizes = _sizes(arguments)
    except (PrivilegeError, SetupError, ValueError) as error:
        sys.exit(f"bench-cluster: {error}")
    machine = describe() | {"Kubernetes": release}
    records: list[Record] = []
    try:
        for record in _measure(sizes, arguments):
            records.append(record)
            _write_json(Results(machine, tuple(records)), arguments.results)
    except KeyboardInterrupt:
        print("bench-cluster: interrupted; the results so far are written", flush=True)
    results = Results(machine | load_at_end(), tuple(records))
    _write_all(results, arguments.results)
    problems = [
        f"bench-cluster: knft, {size}: {note}" for size in results.shapes() if (note := results.note(KNFT, size))
    ]
    sys.exit("\n".join(problems) or 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one tiny cluster, to check that everything works")
    parser.add_argument("--sizes", nargs="+", metavar="SIZE", help="Services x endpoints, such as 100x10 10000x10")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=_PROXY_CHOICES,
        help="these proxies or modes of kube-proxy; iptables-legacy replaces iptables for many Services by default",
    )
    parser.add_argument("--changes", type=int, help="number of measured changes of one endpoint")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="time after which a proxy must be ready")
    parser.add_argument("--results", type=Path, default=RESULTS_FOLDER, help="folder for the results")
    return parser


def _sizes(arguments: argparse.Namespace) -> list[Size]:
    """Return the sizes, small ones first; raise ValueError if one API server cannot have all."""
    sizes = sorted(map(size_named, arguments.sizes or (QUICK_SIZES if arguments.quick else DEFAULT_SIZES)))
    if len({size.endpoints for size in sizes}) != 1:
        msg = "all sizes must have the same number of endpoints"
        raise ValueError(msg)
    return sizes


def _plan(arguments: argparse.Namespace) -> BenchPlan:
    plan = QUICK if arguments.quick else BenchPlan()
    if arguments.changes:
        plan = structs.replace(plan, changes=structs.replace(plan.changes, most=arguments.changes, seconds=3600.0))
    return structs.replace(plan, ready_seconds=arguments.limit or plan.ready_seconds)


def _measure(sizes: Sequence[Size], arguments: argparse.Namespace) -> Iterator[Record]:
    only, plan = [_PROXY_CHOICES[word] for word in arguments.only or ()], _plan(arguments)
    with testbed(sizes[0].endpoints) as bed:
        for size in sizes:
            with _reported(f"creating {size.name}"):
                bed.fill(size)
            for name in only or default_proxies(size.services):
                with _reported(f"{name}, {size.name}"):
                    yield from ProxyMeasurement(bed, name, size.name, plan, arguments.results).records()


@contextmanager
def _reported(label: str) -> Iterator[None]:
    print(f"bench-cluster: {label}", end="", flush=True)
    started = time.monotonic()
    yield
    print(f": {time.monotonic() - started:.0f} s", flush=True)


def _write_json(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def _write_all(results: Results, folder: Path) -> None:
    _write_json(results, folder)
    table = markdown(results)
    (folder / "cluster.md").write_text(table)
    print(table)
    if can_plot():
        plot(results, folder / "cluster.png")
    else:
        print("bench-cluster: no plot without matplotlib (pip install '.[bench]')")
    print(f"bench-cluster: written to {folder}")


if __name__ == "__main__":
    main()
