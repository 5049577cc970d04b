"""``knft run``: the daemon on this machine."""

import logging
import sys
import threading
from typing import Any

from knft.cli.logs import set_up_logging
from knft.cli.options import config_from_options
from knft.cli.signals import hold_signals, stop_on_signals
from knft.cli.takeover import warn_of_leftovers
from knft.configuration.settings import LoggingSettings
from knft.errors import KnftError
from knft.kernel.addresses import local_addresses
from knft.kernel.notifications import ForeignChanges
from knft.kernel.privileges import drop_privileges
from knft.kernel.probe import probe, require_privilege
from knft.kernel.process import LibraryProcess
from knft.render.names import TABLE
from knft.runner.clock import MonotonicClock
from knft.source.directory import DirectorySource, Scan
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon
from knft.sync.memory import tune_collector

log = logging.getLogger("knft")

PATIENCE = 0.7
"""Seconds after SIGTERM for what is under way; whoever waits for the end of the process is told a second."""


def run(*, manifests: str, once: bool, verbosity: int, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Sync, and unless ``once`` is set follow the directory until SIGTERM or SIGINT."""
    if not once:
        hold_signals()
    set_up_logging(LoggingSettings(verbosity=verbosity))
    tune_collector()
    config = config_from_options(options)
    source = DirectorySource(manifests)
    first = source.scan()
    require_privilege()
    others = ForeignChanges(TABLE)
    library = LibraryProcess(others.own_ports)
    probe(library)
    stop = threading.Event() if once else _unprivileged()
    daemon = live_daemon(config, library)
    daemon.note_addresses(local_addresses())
    _take_in(daemon, first)
    if once:
        succeeded = daemon.sync()
        warn_of_leftovers()
        sys.exit(0 if succeeded else 1)
    # Beside the first sync, which does not wait for iptables-save.
    threading.Thread(target=warn_of_leftovers, name="leftovers", daemon=True).start()
    follower = _Follower(daemon, source, stop)
    follower.start()
    threading.Thread(target=daemon.listen, args=[others, stop], name="others", daemon=True).start()
    threading.Thread(target=daemon.guard, args=[library, stop], name="guard", daemon=True).start()
    daemon.run(config.min_sync_period, config.sync_period, MonotonicClock(), stop)
    if follower.failure is not None:
        raise follower.failure
    log.info("stopped; the rules stay in place")


def _unprivileged() -> threading.Event:
    """Give up what takes no part in syncs, before there is a second thread; return the event that ends the daemon."""
    drop_privileges()
    return stop_on_signals(patience=PATIENCE)


def _take_in(daemon: Daemon, scan: Scan) -> None:
    for problem in scan.problems:
        log.warning("%s", problem)
    for remark in scan.remarks:
        log.info("%s", remark)
    daemon.handle(scan.changes)


class _Follower(threading.Thread):
    """Hands on what the directory and the machine's addresses become, until ``stop`` is set.

    An error that knft knows is said, and the next look may find better; any other ends the daemon, loudly: a proxy that
    no longer follows its cluster must not look healthy.
    """

    def __init__(self, daemon: Daemon, source: DirectorySource, stop: threading.Event) -> None:
        super().__init__(name="manifests", daemon=True)
        self._daemon = daemon
        self._source = source
        self._stop_event = stop
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for _ in self._source.watch(self._stop_event):
                self._look()
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            self.failure = error
            self._stop_event.set()

    def _look(self) -> None:
        try:
            _take_in(self._daemon, self._source.scan())
            self._daemon.note_addresses(local_addresses())
        except KnftError as error:
            log.warning("%s", error)
