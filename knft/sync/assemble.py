"""Factories of Daemons: for a live node, and for rendering without a kernel."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType

from knft.config import Config
from knft.decide.address_conflicts import address_conflict
from knft.families import Family
from knft.kernel.ownership import Ownership
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, ObjectChange
from knft.render.layout import cache_filter, markers
from knft.render.names import TABLE
from knft.runner.bounded import Intervals
from knft.sync.daemon import AuditTableOpener, Daemon
from knft.sync.dispatch import Dispatcher
from knft.sync.node_check import NodeCheck
from knft.sync.observer import SyncObserver
from knft.sync.older_version import OlderVersion, Subscribers
from knft.sync.proxier import Proxier
from knft.sync.service_warnings import ServiceWarnings
from knft.sync.state import ServiceState
from knft.sync.table_interface import TransactionRecorder
from knft.track.service_problems import ServiceProblems


def live_daemon(
    config: Config,
    library: WorkerProcess,
    observers: Sequence[SyncObserver] = (),
    *,
    allow_node_mismatch: bool = False,
    other_subscribers: Subscribers | None = None,
) -> Daemon:
    """Return a daemon that programs both families in this kernel; raise UnsupportedError without libnftables.

    ``allow_node_mismatch`` tells that rules may be removed because of mistakes in the node's settings,
    ``other_subscribers`` is None unless this process holds the instance lock: only then are tables left to processes
    that do not know it.
    """
    start = datetime.now(UTC)
    ownership = Ownership(library, TABLE, tuple(Family))
    proxiers = tuple(
        Proxier(
            family,
            config,
            ServiceState(family, config.node_name, start, records_origins=True),
            KernelTable(library, family, TABLE, ownership, cache_filter(family, config)),
            time.monotonic,
        )
        for family in Family
    )
    older_versions = (
        {family: OlderVersion(markers(family, config)[1], other_subscribers) for family in Family}
        if other_subscribers is not None
        else {}
    )
    return _daemon(
        config,
        proxiers,
        _open_audit_table,
        observers,
        is_live=True,
        allow_node_mismatch=allow_node_mismatch,
        older_versions=older_versions,
    )


@contextmanager
def _open_audit_table(family: Family) -> Iterator[KernelTable]:
    with WorkerProcess() as library:
        yield KernelTable(library, family, TABLE)


def rendering_daemon(config: Config) -> tuple[Daemon, dict[Family, TransactionRecorder]]:
    """Return a daemon that reads and changes nothing on this machine, and the recorders of its transactions."""
    start = datetime.fromtimestamp(0, UTC)
    recorders = {family: TransactionRecorder() for family in Family}
    proxiers = tuple(
        Proxier(family, config, ServiceState(family, config.node_name, start), recorder, lambda: 0.0)
        for family, recorder in recorders.items()
    )
    return _daemon(config, proxiers), recorders


def states_after_batches(config: Config, *batches: Iterable[ObjectChange]) -> Iterator[dict[Family, ServiceState]]:
    """Apply each batch of changes and yield both families' states, with nothing pending.

    The dictionary holds the same state objects each time. Nothing is rendered, and nothing on this machine is read.
    """
    start = datetime.fromtimestamp(0, UTC)
    states = {family: ServiceState(family, config.node_name, start) for family in Family}
    dispatcher = Dispatcher(config, tuple(states.values()))
    dispatcher.refresh_node()
    for changes in batches:
        dispatcher.handle(changes)
        for state in states.values():
            state.drain()
        yield states


def _daemon(
    config: Config,
    proxiers: tuple[Proxier, ...],
    open_audit_table: AuditTableOpener | None = None,
    observers: Sequence[SyncObserver] = (),
    *,
    is_live: bool = False,
    allow_node_mismatch: bool = False,
    older_versions: Mapping[Family, OlderVersion] = MappingProxyType({}),
) -> Daemon:
    states = tuple(proxier.state for proxier in proxiers)

    def slices_of(service: NamespacedName) -> Iterator[EndpointSlice]:
        return itertools.chain.from_iterable(state.slices(service) for state in states)

    def conflict_of(address: str) -> str:
        return address_conflict(address, config, dispatcher.node)

    warnings = ServiceWarnings(ServiceProblems(slices_of, conflict_of)) if is_live else None
    dispatcher = Dispatcher(config, states, warnings)
    # Flags describe the node too, even if no Node object ever arrives.
    dispatcher.refresh_node()
    # A sync without a request is needed only to remove unused shared chains.
    maximum = max(config.max_sync_period, config.min_sync_period)
    intervals = Intervals(config.min_sync_period, config.sync_period, maximum, config.sync_burst)
    return Daemon(
        proxiers,
        dispatcher,
        open_audit_table,
        observers,
        node_check=NodeCheck(config, dispatcher, proxiers, allow_loss=allow_node_mismatch) if is_live else None,
        service_warnings=warnings,
        older_versions=older_versions,
        intervals=intervals,
    )
