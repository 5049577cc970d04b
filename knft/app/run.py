"""The daemon of ``knft run``: sets up the host, starts sources and threads, and syncs until it is stopped."""

import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from knft.app.foreign_sets import delete_foreign_newer_sets
from knft.app.instance_lock import take_instance_lock
from knft.app.leftover_warnings import warn_of_leftovers, warn_of_leftovers_in_child
from knft.app.log_writer import LogWriter
from knft.app.object_feeds import ApiServerFeed, ManifestFeed, ObjectFeed
from knft.app.shutdown import Shutdown
from knft.app.signals import stop_on_signals
from knft.config import Config
from knft.configuration.settings import Settings
from knft.configuration.watch import wait_for_change
from knft.errors import InstanceLockedError, ReadOnlySysctlError, ServingError, SourceError
from knft.families import Family
from knft.kernel.addresses import AddressMonitor, local_addresses
from knft.kernel.instance_lock import InstanceLock
from knft.kernel.notifications import ForeignChangeMonitor
from knft.kernel.oom import set_oom_score_adj
from knft.kernel.privileges import drop_privileges
from knft.kernel.probe import probe, require_privilege
from knft.kernel.process import WorkerProcess
from knft.kernel.sysctls import conntrack_is_liberal, set_conntrack
from knft.render.names import TABLE
from knft.serve.metrics import Metrics
from knft.serve.monitoring import Monitoring
from knft.serve.proxy_health import ProxyHealth
from knft.serve.timestamp import now
from knft.sync.assemble import live_daemon
from knft.sync.connection_drainer import ConnectionDrainer
from knft.sync.daemon import Daemon
from knft.sync.flow_cleaner import FlowCleaner
from knft.sync.garbage_collection import tune_garbage_collector
from knft.sync.observer import SyncObserver

if TYPE_CHECKING:
    from knft.app.service_manager import ServiceManager
    from knft.forwarder.forwarder import Forwarder

log = logging.getLogger("knft")

SHUTDOWN_GRACE_SECONDS = 0.4
"""How long a sync may continue after SIGTERM, so that the process exits within a second.

With 100 000 endpoints the exiting thread may also wait for the GIL, twice for 0.3 s: 1.0 s in all.
"""
FAILURE_GRACE_SECONDS = 2.0
"""How long a sync may continue after an error, before the process ends without the error's own exit status."""
EVENT_DELIVERY_SECONDS = 0.5
"""How long to wait for the delivery of the event with the reason of a shutdown."""
LOG_SECONDS = 0.2
"""How long to wait for the log lines with the reason of a shutdown, if standard error blocks."""


class RunOptions(Struct, frozen=True):
    """What to run, and where the settings come from.

    ``config_content`` is the content of ``config_path``; ``flags`` are those given, as text, without dashes.
    ``start_message`` is logged when nothing prevents the start any more.
    """

    manifests: str | None = None
    once: bool = False
    init_only: bool = False
    allow_node_mismatch: bool = False
    wait_for_lock: bool = False
    config_path: str | None = None
    config_content: bytes = b""
    flags: dict[str, str] = {}
    start_message: str = ""


def run(settings: Settings, options: RunOptions, log_writer: LogWriter) -> None:
    """Set up the host and sync: once if ``options.once`` is set, otherwise until SIGTERM or SIGINT.

    With ``options.init_only``, set up the host only. ``log_writer`` writes the log.
    """
    tune_garbage_collector()
    # First, because child processes must not inherit the variables.
    service_manager = _service_manager()
    if options.init_only:
        require_privilege()
        with _take_instance_lock(options):
            _initialize_host(settings)
        return
    source = ManifestFeed(options.manifests) if options.manifests is not None else ApiServerFeed(settings)
    require_privilege()
    with _take_instance_lock(options) as lock:
        log.info("%s", options.start_message)
        # Not before: during the wait for the lock, the other process may serve newer manifests.
        source.prepare()
        _run_locked(settings, options, source, log_writer, service_manager, lock=lock)


def _service_manager() -> "ServiceManager | None":
    """Return the interface to systemd, if that has started this process and asks for notifications."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from knft.app.notify_socket import take_notify_settings  # noqa: PLC0415 - for systemd alone
    from knft.app.service_manager import ServiceManager  # noqa: PLC0415

    notify_settings = take_notify_settings(os.environ)
    return ServiceManager(notify_settings) if notify_settings is not None else None


def _take_instance_lock(options: RunOptions) -> AbstractContextManager[InstanceLock | None]:
    try:
        return take_instance_lock(wait=options.wait_for_lock)
    except InstanceLockedError as error:
        msg = f"{error}; stop it first, or wait until it exits with --wait-for-lock"
        raise InstanceLockedError(msg) from error


def _initialize_host(settings: Settings) -> None:
    """Set the sysctls, which need more privileges than the daemon has; no objects are needed."""
    with WorkerProcess() as library:
        _probe_kernel(library)
        _set_conntrack(settings)
    log.info("set the conntrack sysctls; exiting (--init-only)")


def _probe_kernel(library: WorkerProcess) -> None:
    """Check that the kernel has all features; its NAT rule makes the kernel load conntrack, so that sysctls exist."""
    delete_foreign_newer_sets()
    probe(library)


def _set_conntrack(settings: Settings) -> None:
    for message in set_conntrack(settings.conntrack):
        log.info("%s", message)


def _set_conntrack_if_writable(settings: Settings) -> None:
    """Set the sysctls; only warn if another program has changed one since the init container set it.

    A container that is restarted gets no init container, and its Services matter more than a timeout.
    """
    try:
        _set_conntrack(settings)
    except ReadOnlySysctlError as error:
        log.warning("%s; continuing with the current values", error)


def _for_liberal_conntrack(settings: Settings) -> Settings:
    """Return the settings without dropped INVALID packets if conntrack is liberal, as kube-proxy's mode iptables."""
    if not settings.config.drop_invalid_packets or not conntrack_is_liberal():
        return settings
    log.info("nf_conntrack_tcp_be_liberal is set, so knft does not drop INVALID packets (--drop-invalid-packets)")
    return replace(settings, config=replace(settings.config, drop_invalid_packets=False))


def _run_locked(
    settings: Settings,
    options: RunOptions,
    source: ObjectFeed,
    log_writer: LogWriter,
    service_manager: "ServiceManager | None",
    *,
    lock: InstanceLock | None,
) -> None:
    """Run while no other knft process changes this network namespace."""
    if source.configures_host:
        # Before the worker process of libnftables starts: a child inherits the OOM score adjustment.
        _set_oom_score_adj(settings.oom_score_adj)
    warning_process = None if options.once else warn_of_leftovers_in_child(log_writer)
    foreign_changes = ForeignChangeMonitor(TABLE)
    health = ProxyHealth(settings.config.sync_period, now)
    with WorkerProcess(foreign_changes.set_own_port_ids, health.sync_progressed) as library:
        _probe_kernel(library)
        if source.configures_host:
            _set_conntrack_if_writable(settings)
        settings = _for_liberal_conntrack(settings)
        if options.once and isinstance(source, ManifestFeed):
            _sync_once(settings, options, source, library)
        else:
            _run_until_stopped(
                settings,
                options,
                source,
                library,
                foreign_changes,
                health=health,
                log_writer=log_writer,
                service_manager=service_manager,
                warning_process=warning_process,
                lock=lock,
            )


def _set_oom_score_adj(oom_score_adj: int | None) -> None:
    error = set_oom_score_adj(oom_score_adj)
    if error:
        log.debug("%s", error)


def _sync_once(settings: Settings, options: RunOptions, source: ManifestFeed, library: WorkerProcess) -> None:
    daemon = live_daemon(settings.config, library, allow_node_mismatch=options.allow_node_mismatch)
    daemon.update_local_addresses(local_addresses())
    unread_reason = source.handle_settled_objects(daemon)
    daemon.check_node()
    succeeded = daemon.sync()
    daemon.log_service_problems()
    warn_of_leftovers()
    if unread_reason and succeeded:
        msg = f"{unread_reason}, because it did not read every manifest without error"
        raise SourceError(msg)
    sys.exit(0 if succeeded else 1)


def _run_until_stopped(
    settings: Settings,
    options: RunOptions,
    source: ObjectFeed,
    library: WorkerProcess,
    foreign_changes: ForeignChangeMonitor,
    *,
    health: ProxyHealth,
    log_writer: LogWriter,
    service_manager: "ServiceManager | None",
    warning_process: int | None,
    lock: InstanceLock | None,
) -> None:
    # Capabilities are dropped per thread, so before other threads start.
    drop_privileges()
    shutdown = _prepare_shutdown(log_writer)
    log_writer.start()
    if warning_process is not None:
        threading.Thread(target=os.waitpid, args=[warning_process, 0], name="leftovers", daemon=True).start()
    config = settings.config
    monitoring = Monitoring(
        settings,
        health,
        node_eligible=source.is_eligible,
        on_event=source.record_event,
        on_fatal_listen_error=lambda message: shutdown.fail_after(EVENT_DELIVERY_SECONDS, ServingError(message)),
        flags=options.flags,
    )
    flow_cleaner, drainer = _conntrack_observers(config, monitoring.metrics)
    forwarders = _start_forwarder(config, monitoring, shutdown)
    # Two processes without the lock would leave the table to each other.
    daemon = live_daemon(
        config,
        library,
        _observers(monitoring, (flow_cleaner, drainer), service_manager, forwarders),
        allow_node_mismatch=options.allow_node_mismatch,
        other_subscribers=foreign_changes.other_subscribers if lock is not None else None,
    )
    daemon.update_local_addresses(local_addresses())
    monitoring.register_counters(daemon, library, lambda: log_writer.dropped_lines)
    source.register_metrics(monitoring.metrics)
    if lock is not None:
        monitoring.serve_commands(lock.port_id, daemon, source, forwarders)
    monitoring.start()
    if service_manager is not None:
        service_manager.start(health, shutdown)
    _start_early_threads(options, monitoring, shutdown)
    try:
        source.start(daemon, shutdown)
        if not shutdown.stop.is_set():
            daemon.check_node()
            _start_threads(daemon, library, foreign_changes, flow_cleaner, shutdown)
            daemon.run(shutdown.stop)
    finally:
        _stop_serving(shutdown, service_manager, monitoring)
    shutdown.raise_failure()
    log.info("knft stopped; its rules stay in the kernel")


def _conntrack_observers(config: Config, metrics: Metrics) -> tuple[FlowCleaner, ConnectionDrainer]:
    drainer = ConnectionDrainer(config, local_addresses, metrics.count_ended_connections)
    return FlowCleaner(config, local_addresses, metrics.observe_conntrack_reconcile, drainer=drainer), drainer


def _start_forwarder(config: Config, monitoring: Monitoring, shutdown: Shutdown) -> "dict[Family, Forwarder]":
    """Start the thread that serves NodePorts on loopback addresses; return the forwarder by the families it serves."""
    families = [family for family in Family if config.serves_localhost_nodeports(family)]
    if not families:
        return {}
    from knft.forwarder.forwarder import Forwarder  # noqa: PLC0415 - few nodes serve them
    from knft.serve.localhost_nodeports import LocalhostNodePortsCollector  # noqa: PLC0415

    forwarder = Forwarder()
    monitoring.metrics.register(LocalhostNodePortsCollector(families, forwarder))
    shutdown.start_thread("localhost-nodeports", lambda: forwarder.run(shutdown.stop))
    return dict.fromkeys(families, forwarder)


def _observers(
    monitoring: Monitoring,
    conntrack_observers: Sequence[SyncObserver],
    service_manager: "ServiceManager | None",
    forwarders: "dict[Family, Forwarder]",
) -> tuple[SyncObserver, ...]:
    others: list[SyncObserver] = [] if service_manager is None else [service_manager]
    if forwarders:
        from knft.forwarder.observer import LocalhostNodePorts  # noqa: PLC0415 - few nodes serve them

        others.append(LocalhostNodePorts(forwarders))
    return monitoring.observers_with(*conntrack_observers, *others)


def _start_early_threads(options: RunOptions, monitoring: Monitoring, shutdown: Shutdown) -> None:
    """Start the threads that need no objects: they watch the configuration file, and read counters."""
    shutdown.start_thread("kernel-counters", lambda: monitoring.kernel_counters.run(shutdown.stop))
    if options.config_path is not None:
        path, content = options.config_path, options.config_content
        shutdown.start_thread("configuration", lambda: wait_for_change(path, content, shutdown.stop))


def _stop_serving(shutdown: Shutdown, service_manager: "ServiceManager | None", monitoring: Monitoring) -> None:
    shutdown.stop.set()
    if service_manager is not None:
        service_manager.stop()
    monitoring.stop()


def _prepare_shutdown(log_writer: LogWriter) -> Shutdown:
    """Return the Shutdown that signals start; after an error it exits when the log has the error."""

    def exit_process(status: int) -> None:
        log_writer.flush(LOG_SECONDS)
        os._exit(status)

    return Shutdown(stop_on_signals(grace_seconds=SHUTDOWN_GRACE_SECONDS), FAILURE_GRACE_SECONDS, exit_process)


def _start_threads(
    daemon: Daemon,
    library: WorkerProcess,
    foreign_changes: ForeignChangeMonitor,
    flow_cleaner: FlowCleaner,
    shutdown: Shutdown,
) -> None:
    """Start the threads that watch the host and clean conntrack."""
    stop = shutdown.stop
    shutdown.start_thread("addresses", lambda: AddressMonitor().run(stop, daemon.update_local_addresses))
    shutdown.start_thread("foreign-changes", lambda: daemon.foreign_changes.run(foreign_changes, stop))
    shutdown.start_thread("worker-watch", lambda: daemon.watch_worker_process(library, stop))
    shutdown.start_thread("service-warnings", lambda: daemon.watch_services(stop))
    shutdown.start_thread("conntrack", lambda: flow_cleaner.run(stop))
