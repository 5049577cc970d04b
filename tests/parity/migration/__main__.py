"""Change a node from the real kube-proxy to knft and back; exit with status 1 if a connection is lost."""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.kube_proxy import Mode
from tests.cluster.service_account import ServiceAccount
from tests.parity.migration.migration import ORDERS, WRONG_ORDER, Node, Step, migrate
from tests.parity.migration.phases import PhaseResult
from tests.parity.migration.services import objects
from tests.parity.preparation import prepare
from tests.support.lab.namespace import Namespace

MODES: tuple[Mode, ...] = ("nftables", "iptables")
_SHOWN = 5
_ROW = "  {:33}{:>8}{:>6}{:>13}{:>8}{:>14}  {}"


def main() -> None:
    """Run the chosen modes and orders."""
    given = _arguments()
    _print(f"kube-proxy {prepare('migration')}")
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        namespace = Namespace.create("control-plane")
        opened.callback(namespace.close)
        cluster = opened.enter_context(Cluster(namespace, folder))
        account = ServiceAccount(cluster)
        faults = sum(_run(cluster, account, mode, folder / mode, given.order or ORDERS) for mode in given.mode or MODES)
        if faults:
            sys.exit(f"migration: {faults} connections were lost or reached a wrong endpoint")


def _run(cluster: Cluster, account: ServiceAccount, mode: Mode, folder: Path, orders: tuple[str, ...]) -> int:
    """Run the orders in one mode, print each step, and return the number of faults."""
    folder.mkdir()
    applier = Applier(cluster)
    applier.apply(objects())
    assert not applier.refused, applier.refused
    with Node(cluster, account, mode, folder) as node:
        for order in orders:
            migrate(node, order, with_kube_proxy=order == "start first")
    results = list(zip(node.steps, node.results(), strict=True))
    for migration, group in groupby(results, lambda pair: pair[0].migration):
        _print(migration)
        print(_ROW.format("command", "new", "lost", "established", "broken", "sticky moved", "health checks failed"))
        for step, result in group:
            _print_step(step, result)
    return sum(len(step.faults) + len(result.faults) for step, result in results)


def _print_step(step: Step, result: PhaseResult) -> None:
    failing = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in step.failing_health.items() if seconds)
    moved = f"{result.moved} of {result.sticky}"
    counts = result.connections, len(result.faults), step.established, len(step.faults)
    print(_ROW.format(step.phase.name, *counts, moved, failing).rstrip())
    for fault in (*result.faults[:_SHOWN], *step.faults[:_SHOWN]):
        print(f"    {fault}", flush=True)


def _print(text: str) -> None:
    print(f"migration: {text}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.migration", description=__doc__)
    parser.add_argument("--mode", action="append", choices=MODES, help="run this mode of kube-proxy only")
    parser.add_argument("--order", action="append", choices=(*ORDERS, WRONG_ORDER), help="run this order only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
