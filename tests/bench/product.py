"""knft as it runs on a node, in the namespace the calling thread is in; only its calls of libnftables are timed."""

import time
from collections.abc import Sequence

from msgspec import Struct

from knft.config import Config
from knft.kernel.library import Library
from knft.model.names import Family
from knft.model.objects import Change
from knft.nft.codec.tables import declarations_text, transaction_json
from knft.sync.assemble import live_daemon, recorded_daemon
from tests.bench.cluster import CLUSTER_CIDR, NODE_IP, SERVICE_CIDR
from tests.bench.measure import CollectorClock

CONFIG = Config("node-1", node_ips=(NODE_IP,), cluster_cidrs=(CLUSTER_CIDR,), service_cidrs=(SERVICE_CIDR,))


class Taken(Struct, frozen=True):
    """Seconds that one sync of both families took, from the first event to the last commit.

    ``tracked`` were spent on handing over the events, ``library`` in libnftables and the kernel, ``collector`` in
    Python's garbage collector; ``cpu`` is processor time of this process.
    """

    seconds: float
    tracked: float
    library: float
    collector: float
    cpu: float


class TimedLibrary(Library):
    """libnftables, with the seconds spent in it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def run(self, commands: str) -> str:
        started = time.perf_counter()
        try:
            return super().run(commands)
        finally:
            self.seconds += time.perf_counter() - started


class Product:
    """A daemon of both families."""

    def __init__(self) -> None:
        self.library = TimedLibrary()
        self._collector = CollectorClock()
        self._daemon = live_daemon(CONFIG, self.library)
        self._daemon.note_addresses(frozenset({NODE_IP}))

    def take(self, changes: Sequence[Change]) -> Taken:
        """Hand over the changes and sync; raise RuntimeError where that fails."""
        library, collector = self.library.seconds, self._collector.seconds
        cpu, started = time.process_time(), time.perf_counter()
        self._daemon.handle(changes)
        tracked = time.perf_counter()
        succeeded = self._daemon.sync()
        ended = time.perf_counter()
        if not succeeded:
            msg = "knft's sync failed; its log says why"
            raise RuntimeError(msg)
        return Taken(
            seconds=ended - started,
            tracked=tracked - started,
            library=self.library.seconds - library,
            collector=self._collector.seconds - collector,
            cpu=time.process_time() - cpu,
        )


def bare_commit(changes: Sequence[Change]) -> tuple[str, str]:
    """Return what a first sync of IPv4 sends, ready for libnftables: the declarations, and the transaction."""
    daemon, recorders = recorded_daemon(CONFIG)
    daemon.note_addresses(frozenset({NODE_IP}))
    daemon.handle(changes)
    daemon.sync()
    declared, transaction = recorders[Family.IPV4].first_sync()
    return declarations_text(declared), transaction_json(transaction).decode()
