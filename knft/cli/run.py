"""``knft run``: the daemon on this machine."""

import logging
import signal
import sys
import threading
from typing import Any

from knft.cli.options import config_from_options
from knft.kernel.library import Library
from knft.kernel.probe import probe, require_privilege
from knft.runner.clock import MonotonicClock
from knft.source.directory import DirectorySource, Scan
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon

log = logging.getLogger("knft")

DEBUG_FROM = 2
"""The verbosity from which every sync is logged."""


def run(*, manifests: str, once: bool, verbosity: int, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Sync, and unless ``once`` is set follow the directory until SIGTERM or SIGINT."""
    _set_up_logging(verbosity)
    config = config_from_options(options)
    source = DirectorySource(manifests)
    first = source.scan()
    require_privilege()
    library = Library()
    probe(library)
    daemon = live_daemon(config, library)
    daemon.refresh_node()
    _take_in(daemon, first)
    if once:
        sys.exit(0 if daemon.sync() else 1)
    stop = _stop_on_signals()
    _follow(daemon, source, stop)
    daemon.run(config.min_sync_period, config.sync_period, MonotonicClock(), stop)
    log.info("stopped; the rules stay in place")


def _set_up_logging(verbosity: int) -> None:
    level = logging.DEBUG if verbosity >= DEBUG_FROM else logging.INFO
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    log.setLevel(level)


def _take_in(daemon: Daemon, scan: Scan) -> None:
    for problem in scan.problems:
        log.warning("%s", problem)
    for remark in scan.remarks:
        log.info("%s", remark)
    daemon.handle(scan.changes)


def _follow(daemon: Daemon, source: DirectorySource, stop: threading.Event) -> None:
    def follow() -> None:
        for _ in source.watch(stop):
            _take_in(daemon, source.scan())
            daemon.refresh_node()

    threading.Thread(target=follow, name="manifests", daemon=True).start()


def _stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; a thread waits for them, so that no handler interrupts a sync."""
    stop = threading.Event()
    awaited = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

    def wait() -> None:
        signal.sigwait(awaited)
        stop.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
