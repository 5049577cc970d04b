"""``knft run``: the daemon on this machine."""

import logging
import os
import sys
import threading

from msgspec import Struct

from knft.app.feeds import ApiServerFeed, DirectoryFeed, Feed
from knft.app.leftover_warnings import warn_of_leftovers, warn_of_leftovers_in_child
from knft.app.shutdown import Shutdown
from knft.app.signals import stop_on_signals
from knft.configuration.settings import Settings
from knft.configuration.watch import wait_for_change
from knft.errors import ServingError
from knft.kernel.addresses import AddressMonitor, local_addresses
from knft.kernel.notifications import ForeignChangeMonitor
from knft.kernel.oom import set_oom_score_adj
from knft.kernel.privileges import drop_privileges
from knft.kernel.probe import probe, require_privilege
from knft.kernel.process import LibraryProcess
from knft.kernel.sysctls import set_conntrack
from knft.render.names import TABLE
from knft.serve.monitoring import Monitoring
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon
from knft.sync.flow_cleaner import FlowCleaner
from knft.sync.garbage_collection import tune_garbage_collector

log = logging.getLogger("knft")

SHUTDOWN_GRACE_SECONDS = 0.4
"""Seconds after SIGTERM for what is under way. Whoever waits for the end of the process is told a second: among
100 000 endpoints it took another 0.3 s until the thread that ends it had the interpreter's lock twice."""
EVENT_DELIVERY_SECONDS = 0.5
"""For the event that says why the process ends."""


class RunOptions(Struct, frozen=True):
    """What is to be done with the settings, what they were read from, and ``flags`` as they were given."""

    manifests: str | None = None
    once: bool = False
    init_only: bool = False
    config_path: str | None = None
    config_content: bytes = b""
    flags: dict[str, str] = {}


def run(settings: Settings, options: RunOptions) -> None:
    """Set up the machine, sync, and unless ``once`` is set follow the objects until SIGTERM or SIGINT."""
    tune_garbage_collector()
    feed = DirectoryFeed(options.manifests) if options.manifests is not None else ApiServerFeed(settings)
    require_privilege()
    configures_host = feed.configures_host or options.init_only
    if configures_host:
        # Before there is a process for libnftables, which is to be spared as well.
        _protect_from_oom(settings.oom_score_adj)
    warning_process = None if options.once or options.init_only else warn_of_leftovers_in_child()
    foreign_changes = ForeignChangeMonitor(TABLE)
    with LibraryProcess(foreign_changes.set_own_ports) as library:
        probe(library)
        if configures_host:
            # Conntrack is loaded by now, since the probe has translated addresses.
            for message in set_conntrack(settings.conntrack):
                log.info("%s", message)
        if options.init_only:
            log.info("the system is initialised; ending, as --init-only asks")
        elif options.once and isinstance(feed, DirectoryFeed):
            _sync_once(settings, feed, library)
        else:
            _run_until_stopped(settings, options, feed, library, foreign_changes, warning_process=warning_process)


def _protect_from_oom(oom_score_adj: int | None) -> None:
    error = set_oom_score_adj(oom_score_adj)
    if error:
        log.debug("%s", error)


def _sync_once(settings: Settings, feed: DirectoryFeed, library: LibraryProcess) -> None:
    daemon = live_daemon(settings.config, library)
    daemon.update_local_addresses(local_addresses())
    feed.handle_initial_objects(daemon)
    succeeded = daemon.sync()
    warn_of_leftovers()
    sys.exit(0 if succeeded else 1)


def _run_until_stopped(
    settings: Settings,
    options: RunOptions,
    feed: Feed,
    library: LibraryProcess,
    foreign_changes: ForeignChangeMonitor,
    *,
    warning_process: int | None,
) -> None:
    # Before there is a second thread, to which capabilities would not be denied.
    drop_privileges()
    shutdown = Shutdown(stop_on_signals(grace_seconds=SHUTDOWN_GRACE_SECONDS), SHUTDOWN_GRACE_SECONDS)
    if warning_process is not None:
        threading.Thread(target=os.waitpid, args=[warning_process, 0], name="leftovers", daemon=True).start()
    config = settings.config
    serving = Monitoring(
        settings,
        node_eligible=feed.is_eligible,
        on_event=feed.record_event,
        on_hard_failure=lambda sentence: shutdown.fail_after(EVENT_DELIVERY_SECONDS, ServingError(sentence)),
        flags=options.flags,
    )
    flow_cleaner = FlowCleaner(config, local_addresses, serving.metrics.observe_conntrack_reconcile)
    daemon = live_daemon(config, library, (*serving.observers, flow_cleaner))
    daemon.update_local_addresses(local_addresses())
    serving.observe(daemon, library)
    feed.count_requests(serving.metrics)
    serving.start()
    if options.config_path is not None:
        path, content = options.config_path, options.config_content
        shutdown.start_thread("configuration", lambda: wait_for_change(path, content, shutdown.stop))
    try:
        feed.start(daemon, shutdown)
        if not shutdown.stop.is_set():
            _start_threads(daemon, library, foreign_changes, flow_cleaner, shutdown)
            daemon.run(shutdown.stop)
    finally:
        shutdown.stop.set()
        serving.stop()
    shutdown.raise_failure()
    log.info("stopped; the rules stay in place")


def _start_threads(
    daemon: Daemon,
    library: LibraryProcess,
    foreign_changes: ForeignChangeMonitor,
    flow_cleaner: FlowCleaner,
    shutdown: Shutdown,
) -> None:
    """Start what goes on beside the syncs."""
    stop = shutdown.stop
    shutdown.start_thread("addresses", lambda: AddressMonitor().run(stop, daemon.update_local_addresses))
    shutdown.start_thread("others", lambda: daemon.watch_foreign_changes(foreign_changes, stop))
    shutdown.start_thread("guard", lambda: daemon.watch_library_process(library, stop))
    shutdown.start_thread("conntrack", lambda: flow_cleaner.run(stop))
