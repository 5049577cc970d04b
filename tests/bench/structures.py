"""``python -m tests.bench.structures`` prints how much memory knft's structures hold after a first sync.

The cluster's objects are decoded from the API server's JSON and stored, as a watch does; the daemon has the checks and
observers of ``knft run``, and no kernel. An object that several structures share counts for the first one in the table
only. The sizes are those of Python's objects, so that they are the same on each machine; "rounding" is what Python's
allocator adds to them.

``--processes`` runs ``knft run`` with such a cluster instead, and prints the memory of each of its processes.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from knft.apiserver.decoder import ObjectDecoder, ObjectEvent
from knft.apiserver.store import Store
from knft.configuration.settings import Settings
from knft.families import Family
from knft.model.objects import EndpointSlice, Service
from knft.serve.monitoring import Monitoring
from knft.serve.proxy_health import ProxyHealth
from knft.serve.timestamp import now
from knft.sync import assemble
from knft.sync.connection_drainer import ConnectionDrainer
from knft.sync.daemon import Daemon
from knft.sync.flow_cleaner import FlowCleaner
from knft.sync.observer import SyncObserver
from knft.sync.proxier import Proxier
from knft.sync.state import ServiceState
from knft.sync.table_interface import TransactionRecorder
from tests.bench import weight
from tests.bench.cluster import NODE_IP, Cluster, Shape
from tests.bench.process_tree import descendants, own_pss_mib
from tests.bench.served_cluster import NODE_NAME, served_cluster, service_json, slice_json
from tests.bench.timed_knft import CONFIG
from tests.support.lab.namespace import Namespace
from tests.support.privilege import ensure_namespaces

_SHARED = (type, type(sys), type(lambda: None), type(Family.IPV4))
"""What belongs to no structure: classes, modules, functions and families."""
_ALIGNMENT = 16
"""Python's allocator hands out multiples of so many bytes."""


class StructureSize(Struct, frozen=True):
    """The objects of one structure, their bytes, and the bytes that rounding up to ``_ALIGNMENT`` adds."""

    name: str
    objects: int
    size: int
    rounding: int


class SyncedDaemon(Struct, frozen=True):
    """A daemon after its first sync, and what feeds and observes it in ``knft run``."""

    services: Store
    slices: Store
    daemon: Daemon
    observers: tuple[SyncObserver, ...]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.structures", description=__doc__)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10, help="of each Service")
    parser.add_argument("--processes", action="store_true", help="print the memory of the processes of knft run")
    parser.add_argument("--program", default=str(Path(sys.executable).with_name("knft")), help="for --processes")
    arguments = parser.parse_args()
    shape = Shape("structures", arguments.services, arguments.endpoints)
    if arguments.processes:
        ensure_namespaces()
        _print_processes(shape, arguments.program)
        return
    print("| Structure | bytes for each Service | objects for each Service | rounding, bytes |")
    print("| --- | --- | --- | --- |")
    sizes = list(structure_sizes(shape))
    total = StructureSize("all", *(sum(getattr(s, name) for s in sizes) for name in ("objects", "size", "rounding")))
    for each in (*sizes, total):
        size, objects, rounding = (value / shape.services for value in (each.size, each.objects, each.rounding))
        print(f"| {each.name} | {size:.0f} | {objects:.1f} | {rounding:.0f} |")


def structure_sizes(shape: Shape) -> Iterator[StructureSize]:
    """Yield the sizes of the structures that hold a cluster after the first sync, in the order of the data's path."""
    synced = _synced(shape)
    daemon = synced.daemon
    state, (proxier, _) = daemon.states[Family.IPV4], daemon._proxiers
    programmed = proxier._writer.programmed
    assert programmed is not None
    seen: set[int] = set()
    for name, roots in (
        ("Services as decoded", synced.services.objects.values()),
        ("EndpointSlices as decoded", synced.slices.objects.values()),
        ("change trackers and slices by Service", (state._service_tracker, state._endpoints_tracker._cache)),
        ("Service ports", (state._services,)),
        ("endpoints of Service ports", (state._endpoints,)),
        ("claims to frontends", (state._frontends,)),
        ("programmed contents", (programmed._contents, programmed._members)),
        ("stores of the watches", (synced.services, synced.slices)),
        ("checks of Services", (daemon._service_warnings,)),
        ("health checks, metrics, history, conntrack", synced.observers),
        ("everything else of the daemon", (daemon,)),
    ):
        yield StructureSize(name, *_measure(roots, seen))


def _synced(shape: Shape) -> SyncedDaemon:
    """Return a daemon that has synced the cluster, and checked its Services, as a daemon does after ten seconds."""
    services, slices = Store(CONFIG.node_name), Store(CONFIG.node_name)
    monitoring = Monitoring(
        Settings(CONFIG),
        ProxyHealth(CONFIG.sync_period, now),
        node_eligible=lambda: True,
        on_event=lambda _: None,
        on_fatal_listen_error=lambda _: None,
    )
    drainer = ConnectionDrainer(CONFIG, frozenset, lambda *_: None)
    observers = monitoring.observers_with(FlowCleaner(CONFIG, frozenset, lambda *_: None, drainer=drainer), drainer)
    recorder = TransactionRecorder()
    daemon = _observed_daemon(observers, recorder)
    daemon.update_local_addresses(frozenset({NODE_IP}))
    specs = list(Cluster(shape))
    for store, kind, documents in (
        (services, Service, map(service_json, specs)),
        (slices, EndpointSlice, map(slice_json, specs)),
    ):
        decoder = ObjectDecoder(kind)
        store.begin_list()
        for document in documents:
            line = msgspec.json.encode({"type": "ADDED", "object": document})
            store.add_listed(each for each in decoder.decode_events(line).items if isinstance(each, ObjectEvent))
        daemon.handle(store.finish_list())
    daemon.sync()
    daemon.log_service_problems()
    recorder.transactions.clear()
    return SyncedDaemon(services, slices, daemon, observers)


def _observed_daemon(observers: tuple[SyncObserver, ...], recorder: TransactionRecorder) -> Daemon:
    """Return a daemon as ``live_daemon`` does, with ``recorder`` in place of the kernel's tables."""
    proxiers = tuple(
        Proxier(
            family,
            CONFIG,
            ServiceState(family, CONFIG.node_name, datetime.now(UTC), records_origins=True),
            recorder,
            time.monotonic,
        )
        for family in Family
    )
    return assemble._daemon(CONFIG, proxiers, None, observers, is_live=True)


def _measure(roots: Iterable[object], seen: set[int]) -> tuple[int, int, int]:
    """Return the number of objects that ``roots`` reach and that are not in ``seen``, their bytes, and the rounding.

    Adds the objects to ``seen``.
    """
    count = size = rounding = 0
    waiting: list[Any] = list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen or item is None or isinstance(item, (*_SHARED, bool)):
            continue
        seen.add(id(item))
        own = sys.getsizeof(item)
        count, size, rounding = count + 1, size + own, rounding + -own % _ALIGNMENT
        waiting.extend(_parts(item))
    return count, size, rounding


def _parts(item: Any) -> Iterator[Any]:
    match item:
        case Struct():
            yield from (getattr(item, name) for name in item.__struct_fields__)
        case dict():
            yield from item.keys()
            yield from item.values()
        case tuple() | list() | set() | frozenset():
            yield from item
        case str() | bytes() | int() | float():
            pass
        case _:
            yield from getattr(item, "__dict__", {}).values()


def _print_processes(shape: Shape, program: str) -> None:
    """Run ``knft run``, and print the proportional set size of each of its processes after the start, in MiB.

    Anonymous memory is what a process wrote itself; the rest are pages of files, such as the interpreter's, of which
    each process has a part.
    """
    flags = ["--services", str(shape.services), "--endpoints", str(shape.endpoints)]
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Namespace.create("structures")) as namespace,
        served_cluster(namespace, flags) as cluster,
    ):
        kubeconfig, config, log = (Path(folder, name) for name in ("kubeconfig", "config.yaml", "log"))
        kubeconfig.write_text(weight._KUBECONFIG.format(url=cluster.url))
        config.write_text(weight._CONFIGURATION.format(kubeconfig=kubeconfig, metrics=weight.METRICS))
        command = [program, "run", f"--config={config}", f"--hostname-override={NODE_NAME}", "--min-sync-period=0"]
        with log.open("w") as output:
            process = namespace.popen(command, stderr=output, env=weight._environment())
        try:
            weight._wait_for_sync(process, log, samples_memory=False)
            time.sleep(weight.SETTLE_SECONDS)
            print("| Process | MiB | of that anonymous |\n| --- | --- | --- |")
            for pid in descendants(process.pid):
                total, anonymous = own_pss_mib(pid), own_pss_mib(pid, "Pss_Anon:")
                name = "daemon" if pid == process.pid else "worker process"
                print(f"| {name} | {total:.1f} | {anonymous:.1f} |")
        finally:
            process.terminate()
            process.wait(weight.TIME_LIMIT)


if __name__ == "__main__":
    main()
