"""100 000 changes of sticky Services within less time than their affinity timeout: memory has a plateau.

Each change replaces an endpoint by a new one, replaces a Service by one of another name, or changes session affinity.
So new endpoints need new IDs all the time, and knft must not keep those of removed ones.
"""

import sys
from datetime import UTC, datetime
from random import Random

from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable
from knft.model.objects import ObjectChange
from knft.render.names import TABLE
from knft.sync.dispatch import Dispatcher
from knft.sync.proxier import Proxier
from knft.sync.state import ServiceState
from tests.bench.cluster import AFFINITY_SECONDS, NODE_IP, ServiceSpec
from tests.bench.manifests import changes
from tests.bench.timed_knft import CONFIG
from tests.soak.memory import ALLOWED, MemoryWatch
from tests.support.fake_clock import FakeClock
from tests.support.lab.namespace import Namespace

REPORTS = 40
SERVICES, ENDPOINTS = 50, 5
CHANGES_PER_SYNC = 10
SECONDS_PER_CHANGE = 0.1


class _Node:
    """A node with sticky Services that change all the time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._clock = FakeClock()
        self._library = WorkerProcess()
        state = ServiceState(Family.IPV4, CONFIG.node_name, datetime.now(UTC))
        table = KernelTable(self._library, Family.IPV4, TABLE)
        self._proxier = Proxier(Family.IPV4, CONFIG, state, table, self._clock)
        self._dispatcher = Dispatcher(CONFIG, (state,))
        self._dispatcher.update_local_addresses(frozenset({NODE_IP}))
        self._next_endpoint = self._next_service = 0
        self._services = [self._new_service() for _ in range(SERVICES)]
        for service in self._services:
            self._dispatcher.handle(changes(((None, service),)))
        self.sync()

    def _new_service(self) -> ServiceSpec:
        self._next_service += 1
        return ServiceSpec(self._next_service, self._new_endpoints(ENDPOINTS), AFFINITY_SECONDS)

    def _new_endpoints(self, count: int) -> tuple[int, ...]:
        self._next_endpoint += count
        return tuple(range(self._next_endpoint - count, self._next_endpoint))

    def change(self) -> None:
        """Change one Service."""
        self._clock.now += SECONDS_PER_CHANGE
        position, kind = self._rng.randrange(SERVICES), self._rng.randrange(10)
        before = self._services[position]
        if kind == 0:
            after = self._new_service()
            removals = [ObjectChange(each.current, None) for each in changes(((None, before),))]
            self._dispatcher.handle([*removals, *changes(((None, after),))])
        elif kind == 1:
            after = ServiceSpec(before.number, before.endpoints, AFFINITY_SECONDS - before.affinity_seconds)
            (service, *_), (changed, *_) = changes(((None, before),)), changes(((None, after),))
            self._dispatcher.handle([ObjectChange(service.current, changed.current)])
        else:
            after = ServiceSpec(
                before.number, (*before.endpoints[1:], *self._new_endpoints(1)), before.affinity_seconds
            )
            self._dispatcher.handle(changes(((before, after),)))
        self._services[position] = after

    def sync(self) -> None:
        self._proxier.sync()

    def close(self) -> None:
        self._library.close()


def soak(steps: int, seed: int) -> None:
    """Make ``steps`` changes, and report memory from time to time; exit if it grows in the second half."""
    namespace, watch = Namespace.create("sticky"), MemoryWatch()
    with namespace.entered():
        node = _Node(Random(seed))  # noqa: S311 - reproducible
        for step in range(1, steps + 1):
            node.change()
            if step % CHANGES_PER_SYNC == 0:
                node.sync()
            if step % (steps // REPORTS) == 0:
                sizes = " + ".join(f"{size:.1f}" for size in watch.sample())
                print(f"soak: {step} changes of sticky Services, {sizes} MiB", flush=True)
        node.close()
    namespace.close()
    growth = watch.growth()
    print(f"soak: memory grew by {growth:.2f} MiB in the second half ({ALLOWED} allowed)")
    if growth > ALLOWED:
        sys.exit(f"soak: memory grew by {growth:.2f} MiB, allowed are {ALLOWED} MiB")
