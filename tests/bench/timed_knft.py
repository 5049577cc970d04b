"""knft as it runs on a node, in the calling thread's namespace, with measured calls of libnftables."""

import resource
import time
from collections.abc import Sequence

from msgspec import Struct

from knft.config import Config
from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.model.objects import ObjectChange
from knft.nft.codec.tables import declarations_text, transaction_json
from knft.sync.assemble import live_daemon, rendering_daemon
from knft.sync.garbage_collection import tune_garbage_collector
from knft.sync.observer import SyncObserver
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.bench.cluster import CLUSTER_CIDR, NODE_IP, SERVICE_CIDR
from tests.bench.measure import CollectorClock, process_cpu_seconds, resident_mib

CONFIG = Config("node-1", node_ips=(NODE_IP,), cluster_cidrs=(CLUSTER_CIDR,), service_cidrs=(SERVICE_CIDR,))


class SyncTimes(Struct, frozen=True):
    """Seconds of one sync of both families, from the first event to the last commit.

    ``tracked`` were spent in the trackers, ``libnftables`` in the library and the kernel, ``collector`` in Python's
    garbage collector. ``cpu`` is the CPU time of this process and of the library's; ``libnftables_cpu`` is the latter.
    Work after the commit (collecting garbage after a full sync) counts in ``cpu`` only.
    """

    seconds: float
    tracked: float
    libnftables: float
    collector: float
    cpu: float
    libnftables_cpu: float


class TimedLibrary(WorkerProcess):
    """libnftables in its own process; measures its input, the seconds of its calls, and the time of the last answer."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0
        self.seconds = self.answered_at = 0.0

    def run(self, commands: str, *, terse: bool = False) -> str:
        started = time.perf_counter()
        self.sent_bytes += len(commands)
        try:
            return super().run(commands, terse=terse)
        finally:
            self.answered_at = time.perf_counter()
            self.seconds += self.answered_at - started

    def resident_mib(self) -> float:
        """Return the resident memory of the current process, in MiB."""
        return resident_mib(self.pid or 0)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the current process, and of those that it has replaced."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime + process_cpu_seconds(self.pid or 0)


class ElementCounter(SyncObserver):
    """Counts the elements that syncs add and remove."""

    def __init__(self) -> None:
        self.elements = 0

    def sync_succeeded(self, report: SyncReport, state: ServiceState) -> None:
        del state
        self.elements += report.elements_added + report.elements_removed


class TimedKnft:
    """knft for both families."""

    def __init__(self, config: Config = CONFIG, observers: Sequence[SyncObserver] = ()) -> None:
        self.libnftables = TimedLibrary()
        self._collector = CollectorClock()
        tune_garbage_collector()
        self._daemon = live_daemon(config, self.libnftables, observers)
        self._daemon.update_local_addresses(frozenset({NODE_IP}))

    def sync(self, changes: Sequence[ObjectChange]) -> SyncTimes:
        """Pass the changes to the trackers and sync; raise RuntimeError if the sync fails."""
        library, collector = self.libnftables.seconds, self._collector.seconds
        library_cpu = self.libnftables.cpu_seconds()
        cpu, started = self._cpu_seconds(), time.perf_counter()
        self._daemon.handle(changes)
        tracked = time.perf_counter()
        succeeded = self._daemon.sync_due()
        ended = self.libnftables.answered_at
        if not succeeded:
            msg = "the sync failed; see the log"
            raise RuntimeError(msg)
        return SyncTimes(
            seconds=ended - started,
            tracked=tracked - started,
            libnftables=self.libnftables.seconds - library,
            collector=self._collector.seconds - collector,
            cpu=self._cpu_seconds() - cpu,
            libnftables_cpu=self.libnftables.cpu_seconds() - library_cpu,
        )

    def close(self) -> None:
        """End libnftables' process, which keeps its network namespace."""
        self.libnftables.close()

    @property
    def proxier(self) -> Proxier:
        """The Proxier of IPv4."""
        return self._daemon._proxiers[0]

    def _cpu_seconds(self) -> float:
        return time.process_time() + self.libnftables.cpu_seconds()


def bare_commit(changes: Sequence[ObjectChange]) -> tuple[str, str]:
    """Return the input of libnftables for a first sync of IPv4: the declarations, and the transaction."""
    daemon, recorders = rendering_daemon(CONFIG)
    daemon.update_local_addresses(frozenset({NODE_IP}))
    daemon.handle(changes)
    daemon.sync()
    declared, transaction = recorders[Family.IPV4].first_sync()
    return declarations_text(declared), transaction_json(transaction).decode()
