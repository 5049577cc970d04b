"""Putting the stages together: for a live node, and for rendering."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from knft.config import Config
from knft.families import Family
from knft.kernel.ownership import Ownership
from knft.kernel.process import LibraryProcess
from knft.kernel.table import KernelTable
from knft.model.objects import Change
from knft.render.names import TABLE
from knft.sync.daemon import Auditor, Daemon
from knft.sync.dispatch import Dispatcher
from knft.sync.observer import Observer
from knft.sync.ports import Recorder
from knft.sync.proxier import Proxier
from knft.sync.state import ServiceState


def live_daemon(config: Config, library: LibraryProcess, observers: Sequence[Observer] = ()) -> Daemon:
    """Return a daemon for both families that works on this machine's kernel; raise UnsupportedError without library."""
    start = datetime.now(UTC)
    ownership = Ownership(library, TABLE, tuple(Family))
    proxiers = tuple(
        Proxier(
            family,
            config,
            ServiceState(family, config.node_name, start),
            KernelTable(library, family, TABLE, ownership),
            time.monotonic,
        )
        for family in Family
    )
    return _daemon(config, proxiers, _second_way, observers)


@contextmanager
def _second_way(family: Family) -> Iterator[KernelTable]:
    with LibraryProcess() as library:
        yield KernelTable(library, family, TABLE)


def recorded_daemon(config: Config) -> tuple[Daemon, dict[Family, Recorder]]:
    """Return a daemon that touches nothing and reads nothing of the machine, and what it will have recorded."""
    start = datetime.fromtimestamp(0, UTC)
    recorders = {family: Recorder() for family in Family}
    proxiers = tuple(
        Proxier(family, config, ServiceState(family, config.node_name, start), recorder, lambda: 0.0)
        for family, recorder in recorders.items()
    )
    return _daemon(config, proxiers), recorders


def settled_states(config: Config, *stages: Iterable[Change]) -> Iterator[dict[Family, ServiceState]]:
    """Yield both families' states after each stage of changes, with nothing pending; they are the same ones each time.

    Nothing is rendered, and nothing of the machine is read or touched.
    """
    start = datetime.fromtimestamp(0, UTC)
    states = {family: ServiceState(family, config.node_name, start) for family in Family}
    dispatcher = Dispatcher(config, tuple(states.values()))
    dispatcher.refresh_node()
    for changes in stages:
        dispatcher.handle(changes)
        for state in states.values():
            state.check_out()
        yield states


def _daemon(
    config: Config,
    proxiers: tuple[Proxier, ...],
    auditor: Auditor | None = None,
    observers: Sequence[Observer] = (),
) -> Daemon:
    dispatcher = Dispatcher(config, tuple(proxier.state for proxier in proxiers))
    # The flags alone say something about the node, also where no Node object ever comes.
    dispatcher.refresh_node()
    return Daemon(proxiers, dispatcher, auditor, observers)
