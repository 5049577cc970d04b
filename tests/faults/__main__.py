"""Make faults in a cluster with knft while clients connect; exit with status 1 if a lost connection is unexplained."""

import argparse
import platform
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from deploy.cluster.cluster import Cluster
from deploy.cluster.plan import Families, make_plan
from deploy.cluster.state import default_folder
from deploy.programs.errors import SetupError
from tests.faults.faults import FAULTS, Fault, Options
from tests.faults.neighbours import full_tables
from tests.faults.report import Report, Result, faults, notes, table
from tests.faults.testbed import Testbed
from tests.faults.traffic import Traffic, read_records
from tests.faults.verdict import judge
from tests.faults.watches import Watches
from tests.support.job_cluster import job_cluster

_NODES = 3


def main() -> None:
    """Do what the command line says."""
    arguments = _parse_arguments()
    if arguments.list:
        for fault in FAULTS:
            print(f"{fault.name:22} {fault.text}")
        return
    # "timeout" and service managers send SIGTERM; the cluster must be removed then, too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        folder = arguments.directory.absolute()
        results = judge_again(folder / "report") if arguments.judge else _run(arguments, folder)
    except SetupError as error:
        sys.exit(f"faults: {error}")
    print("\n".join((*table(results), *faults(results), *(line for result in results for line in notes(result)))))
    if not all(result.is_good for result in results):
        sys.exit(1)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="make this fault only")
    parser.add_argument("--list", action="store_true", help="print the names of all faults, and exit")
    parser.add_argument("--api-seconds", type=float, default=600.0, help="absence of the API server; default: 600")
    parser.add_argument("--pods", type=int, default=300, help="number of pods that are rolled; default: 300")
    parser.add_argument(
        "--families", type=Families, choices=list(Families), default=Families.DUAL, help="default: dual"
    )
    parser.add_argument(
        "--directory", type=Path, default=default_folder().with_name("faults"), help="of the cluster and the report"
    )
    parser.add_argument("--judge", action="store_true", help="judge the connections of the last report again")
    return parser.parse_args()


def judge_again(report: Path) -> list[Result]:
    """Return the results of a report with new verdicts; raise SetupError if it has no pods."""
    try:
        results = msgspec.json.decode((report / "faults.json").read_bytes(), type=Report).results
    except (OSError, msgspec.DecodeError) as error:
        msg = f"{report} is no report: {error}"
        raise SetupError(msg) from error
    if lacking := [result.name for result in results if not result.error and not result.pods]:
        msg = f"the report does not say when pods died: {', '.join(lacking)}"
        raise SetupError(msg)
    return [
        msgspec.structs.replace(result, verdict=judge(read_records(report / result.name), result.pods, result.started))
        for result in results
    ]


def _run(arguments: argparse.Namespace, folder: Path) -> list[Result]:
    """Start a cluster, make the chosen faults in it, write the report after each, and remove the cluster."""
    options = Options(arguments.api_seconds, arguments.pods)
    chosen = [fault for fault in FAULTS if fault.name in (arguments.only or [each.name for each in FAULTS])]
    images = list(dict.fromkeys(path for fault in chosen for path in fault.images()))
    results: list[Result] = []
    with job_cluster(folder) as (cluster, report):
        cluster.up(make_plan(_NODES, arguments.families), images)
        testbed = Testbed(cluster)
        testbed.set_up()
        for fault in chosen:
            print(f"faults: {fault.name}: {fault.text}", flush=True)
            results.append(make_fault(fault, testbed, options, report))
            _write_report(report / "faults.json", cluster, options, results)
    return results


def make_fault(fault: Fault, testbed: Testbed, options: Options, report: Path) -> Result:
    """Make a fault while clients connect; ``report`` is the directory of the records."""
    folder = report / fault.name
    folder.mkdir()
    started, full = time.time(), full_tables()
    try:
        with fault.environment(testbed, options) as places:
            with Watches(testbed.kubectl_command) as watches:
                started = time.time()
                with Traffic(places, folder) as traffic:
                    traffic.wait_for_more()
                    fault.make(testbed, options)
                    testbed.wait_until_followed()
                    traffic.wait_for_more()
                seconds = time.time() - started
                watches.wait_for_deaths()
            watches.pods.kill(testbed.killed)
            verdict = judge(read_records(folder), watches.pods.lives, started)
    except (SetupError, AssertionError) as error:
        return Result(fault.name, fault.text, time.time() - started, error=str(error))
    pods = watches.pods.lives
    result = Result(fault.name, fault.text, seconds, verdict, "", started, pods, full_tables() - full)
    verdict_lines = list(faults([result])) or [f"{fault.name}: {verdict.new} new connections, none unexplained"]
    for line in (*verdict_lines, *notes(result)):
        print(f"faults: {line}", flush=True)
    return result


def _write_report(path: Path, cluster: Cluster, options: Options, results: Sequence[Result]) -> None:
    report = Report(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        kubernetes=cluster.programs.release,
        kernel=platform.release(),
        families=cluster.plan.families,
        api_seconds=options.api_seconds,
        pods=options.pods,
        results=tuple(results),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)))


if __name__ == "__main__":
    main()
