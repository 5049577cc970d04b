"""``knft run``: the daemon on this machine."""

import logging
import os
import sys
import threading

from msgspec import Struct

from knft.cli.ending import Ending
from knft.cli.feeds import ClusterFeed, DirectoryFeed, Feed
from knft.cli.signals import stop_on_signals
from knft.cli.takeover import warn_beside, warn_of_leftovers
from knft.configuration.settings import Settings
from knft.configuration.watch import wait_for_change
from knft.errors import ServingError
from knft.kernel.addresses import AddressFollower, local_addresses
from knft.kernel.notifications import ForeignChanges
from knft.kernel.oom import set_oom_score_adj
from knft.kernel.privileges import drop_privileges
from knft.kernel.probe import probe, require_privilege
from knft.kernel.process import LibraryProcess
from knft.kernel.sysctls import set_conntrack
from knft.render.names import TABLE
from knft.runner.clock import MonotonicClock
from knft.serve.assemble import Serving
from knft.sync.assemble import live_daemon
from knft.sync.conntrack import FlowCleaner
from knft.sync.daemon import Daemon
from knft.sync.memory import tune_collector

log = logging.getLogger("knft")

PATIENCE = 0.4
"""Seconds after SIGTERM for what is under way. Whoever waits for the end of the process is told a second: among
100 000 endpoints it took another 0.3 s until the thread that ends it had the interpreter's lock twice."""
EVENT_SECONDS = 0.5
"""For the event that says why the process ends."""


class Control(Struct, frozen=True):
    """What is to be done with the settings, what they were read from, and ``flags`` as they were given."""

    manifests: str | None = None
    once: bool = False
    init_only: bool = False
    config_path: str | None = None
    config_content: bytes = b""
    flags: dict[str, str] = {}


def run(settings: Settings, control: Control) -> None:
    """Set up the machine, sync, and unless ``once`` is set follow the objects until SIGTERM or SIGINT."""
    tune_collector()
    feed = DirectoryFeed(control.manifests) if control.manifests is not None else ClusterFeed(settings)
    require_privilege()
    sets_up = feed.sets_up_machine or control.init_only
    if sets_up:
        # Before there is a process for libnftables, which is to be spared as well.
        _spare(settings.oom_score_adj)
    looking = None if control.once or control.init_only else warn_beside()
    others = ForeignChanges(TABLE)
    with LibraryProcess(others.own_ports) as library:
        probe(library)
        if sets_up:
            # Conntrack is loaded by now, since the probe has translated addresses.
            for sentence in set_conntrack(settings.conntrack):
                log.info("%s", sentence)
        if control.init_only:
            log.info("the system is initialised; ending, as --init-only asks")
        elif control.once and isinstance(feed, DirectoryFeed):
            _sync_once(settings, feed, library)
        else:
            _follow(settings, control, feed, library, others, looking=looking)


def _spare(oom_score_adj: int | None) -> None:
    complaint = set_oom_score_adj(oom_score_adj)
    if complaint:
        log.debug("%s", complaint)


def _sync_once(settings: Settings, feed: DirectoryFeed, library: LibraryProcess) -> None:
    daemon = live_daemon(settings.config, library)
    daemon.note_addresses(local_addresses())
    feed.take_in(daemon)
    succeeded = daemon.sync()
    warn_of_leftovers()
    sys.exit(0 if succeeded else 1)


def _follow(
    settings: Settings,
    control: Control,
    feed: Feed,
    library: LibraryProcess,
    others: ForeignChanges,
    *,
    looking: int | None,
) -> None:
    # Before there is a second thread, to which capabilities would not be denied.
    drop_privileges()
    ending = Ending(stop_on_signals(patience=PATIENCE), PATIENCE)
    if looking is not None:
        threading.Thread(target=os.waitpid, args=[looking, 0], name="leftovers", daemon=True).start()
    config = settings.config
    serving = Serving(
        settings,
        node_eligible=feed.is_eligible,
        on_event=feed.tell,
        on_hard_failure=lambda sentence: ending.fail_after(EVENT_SECONDS, ServingError(sentence)),
        flags=control.flags,
    )
    cleaner = FlowCleaner(config, local_addresses, serving.metrics.conntrack_reconciled)
    daemon = live_daemon(config, library, (*serving.observers, cleaner))
    daemon.note_addresses(local_addresses())
    serving.follow(daemon, library)
    feed.count_requests(serving.metrics)
    serving.start()
    if control.config_path is not None:
        path, content = control.config_path, control.config_content
        ending.thread("configuration", lambda: wait_for_change(path, content, ending.stop))
    try:
        feed.start(daemon, ending)
        if not ending.stop.is_set():
            _work(daemon, library, others, cleaner, ending)
            daemon.run(config.min_sync_period, config.sync_period, MonotonicClock(), ending.stop)
    finally:
        ending.stop.set()
        serving.stop()
    ending.raise_failure()
    log.info("stopped; the rules stay in place")


def _work(
    daemon: Daemon, library: LibraryProcess, others: ForeignChanges, cleaner: FlowCleaner, ending: Ending
) -> None:
    """Start what goes on beside the syncs."""
    stop = ending.stop
    ending.thread("addresses", lambda: AddressFollower().follow(stop, daemon.note_addresses))
    ending.thread("others", lambda: daemon.listen(others, stop))
    ending.thread("guard", lambda: daemon.guard(library, stop))
    ending.thread("conntrack", lambda: cleaner.run(stop))
