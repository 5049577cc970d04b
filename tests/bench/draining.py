"""``python -m tests.bench.draining`` measures syncs beside 100 000 connections that draining does not end.

One knft has no other connections in conntrack, another one has them. Both run in turn, in this process, each in a
network namespace of its own. A sync replaces an endpoint of a Service without ``knft.dev/drain``. The values are
medians of the time from the change to the last commit, and of the CPU time of the syncing thread and of libnftables:

- without other connections,
- with them, when nothing is drained,
- with them, while another thread lists them to end connections to deleted endpoints.

The ratios are those to the syncs without other connections. The last column is the CPU time of the other thread for one
list of the connections. If a sync runs when the list ends, the thread begins again.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Collection, Iterable
from statistics import median
from typing import Any, NamedTuple, Self

from knft.families import Family
from knft.kernel.addresses import local_addresses
from knft.model.objects import KubeObject, ObjectChange
from knft.sync.assemble import live_daemon
from knft.sync.connection_drainer import ConnectionDrainer
from knft.sync.garbage_collection import tune_garbage_collector
from tests.bench.timed_knft import TimedLibrary
from tests.support.draining import MANY, connect_to_endpoints, connect_to_other_endpoint, drained_service
from tests.support.families import VERSIONS
from tests.support.kernel_harness import CONFIG, decode_manifest, service, slices
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version
from tests.support.privilege import PrivilegeError, ensure_namespaces

ENDED = 100
SYNCS = 10
"""Syncs in each round, when nothing is drained."""
PAUSE_SECONDS = 0.01
"""Time between two syncs, and between two attempts to end connections: a sync interrupts an attempt."""


class Case(NamedTuple):
    """The endpoints that are deleted at once."""

    version: Version
    deleted: Collection[int]


CASES = {
    "IPv4, 1 endpoint": Case(4, [1]),
    f"IPv4, {len(MANY)} endpoints": Case(4, MANY),
    "IPv6, 1 endpoint": Case(6, [2]),
    "IPv6, 1 endpoint with the port of the others": Case(6, [1]),
    f"IPv6, {len(MANY)} endpoints with different ports": Case(6, MANY),
}


class SyncFigures(NamedTuple):
    """Seconds of one sync."""

    wall: float
    cpu: float


class DrainingKnft:
    """knft for both families in its own namespace, with that many other connections in each family."""

    def __init__(self, others: int) -> None:
        self.namespace = Namespace.create("draining")
        self._objects: dict[tuple[str, str], KubeObject] = {}
        self._ended, self._syncs = 0, 0
        self._drainer = ConnectionDrainer(CONFIG, local_addresses, self._count, grace=0.0)
        with self.namespace.entered():
            self._library = TimedLibrary()
            self._daemon = live_daemon(CONFIG, self._library, (self._drainer,))
            for version in VERSIONS:
                connect_to_other_endpoint(version, others)
        found = int(self.namespace.read_sysctl("net.netfilter.nf_conntrack_count"))
        if found != 2 * others:
            sys.exit(f"bench: conntrack has {found} of {2 * others} entries; increase net.netfilter.nf_conntrack_max")
        self.sync()

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process of libnftables."""
        self._library.close()
        self.namespace.close()

    def _count(self, _: Family, count: int) -> None:
        self._ended += count

    def sync(self, objects: Iterable[dict[str, Any]] = ()) -> SyncFigures:
        """Sync these objects, and a replaced endpoint of another Service, after a pause."""
        time.sleep(PAUSE_SECONDS)
        self._syncs += 1
        items = [*objects, service("other", 11), *slices("other", [11, 12 + self._syncs % 2])]
        changes = [self._change(item) for item in items]
        cpu, started = self._cpu_seconds(), time.perf_counter()
        self._daemon.handle(changes)
        if not self._daemon.sync_due():
            sys.exit("bench: a sync failed; see the log")
        return SyncFigures(self._library.answered_at - started, self._cpu_seconds() - cpu)

    def _change(self, item: dict[str, Any]) -> ObjectChange:
        key, current = (item["kind"], item["metadata"]["name"]), decode_manifest(item)
        previous, self._objects[key] = self._objects.get(key), current
        return ObjectChange(previous, current)

    def _cpu_seconds(self) -> float:
        return time.thread_time() + self._library.cpu_seconds()

    def sync_at_rest(self) -> list[SyncFigures]:
        """Sync some times while no connection is to be ended."""
        with self.namespace.entered():
            return [self.sync() for _ in range(SYNCS)]

    def sync_during_drain(self, case: Case) -> tuple[list[SyncFigures], float]:
        """Delete the case's endpoints, and sync until their connections have ended.

        Returns the syncs, and the CPU seconds of each pass of the thread that ends the connections.
        """
        cpu: list[float] = []
        self._ended = 0

        def drain() -> None:
            passes = 0
            with self.namespace.entered():
                while self._ended < ENDED:
                    passes += self._drainer.run_due_passes()
                    time.sleep(PAUSE_SECONDS)
            cpu.append(time.thread_time() / passes)

        with self.namespace.entered():
            self.sync(drained_service(case.version, {*case.deleted, MANY.stop}))
            connect_to_endpoints(case.version, case.deleted, ENDED)
            self.sync(drained_service(case.version, {MANY.stop}))
            thread = threading.Thread(target=drain)
            figures: list[SyncFigures] = []
            thread.start()
            while thread.is_alive():
                figures.append(self.sync())
        return figures, cpu[0]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.draining", description=__doc__)
    parser.add_argument("--others", type=int, default=100_000, help="other connections of each family")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    tune_garbage_collector()
    print("load:", *os.getloadavg())
    print("| Deleted | Other connections | sync, ms | ratio | CPU, ms | ratio | CPU of a list, ms |")
    print("| --- " * 7 + "|")
    with DrainingKnft(0) as alone, DrainingKnft(arguments.others) as among_others:
        for name, case in CASES.items():
            _measure(name, case, (alone, among_others), arguments)
    print("load:", *os.getloadavg())


def _measure(name: str, case: Case, knfts: tuple[DrainingKnft, DrainingKnft], arguments: argparse.Namespace) -> None:
    """Measure one case, and print its rows."""
    alone, among_others = knfts
    without, with_others = "none", f"{arguments.others}"
    draining = f"{with_others}, listed meanwhile"
    rows: dict[str, list[SyncFigures]] = {without: [], with_others: [], draining: []}
    cpu = []
    for _ in range(arguments.rounds):
        rows[without] += alone.sync_at_rest()
        rows[with_others] += among_others.sync_at_rest()
        figures, seconds = among_others.sync_during_drain(case)
        rows[draining] += figures
        cpu.append(seconds)
    base = _medians(rows[without])
    for label, figures in rows.items():
        wall, own = _medians(figures)
        other = f"{median(cpu) * 1e3:.1f}" if label == draining else ""
        print(
            f"| {name} | {label} | {wall * 1e3:.2f} | {wall / base.wall:.2f} | {own * 1e3:.2f} | {own / base.cpu:.2f} "
            f"| {other} |",
            flush=True,
        )


def _medians(figures: list[SyncFigures]) -> SyncFigures:
    return SyncFigures(median(each.wall for each in figures), median(each.cpu for each in figures))


if __name__ == "__main__":
    main()
