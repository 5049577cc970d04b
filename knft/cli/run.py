"""``knft run``: the daemon on this machine."""

import logging
import sys
import threading
from typing import NoReturn

from msgspec import Struct

from knft.cli.signals import stop_on_signals
from knft.cli.takeover import warn_of_leftovers
from knft.configuration.settings import Settings
from knft.configuration.watch import wait_for_change
from knft.errors import KnftError, UnsupportedError
from knft.kernel.addresses import local_addresses
from knft.kernel.notifications import ForeignChanges
from knft.kernel.probe import probe, require_privilege
from knft.kernel.process import LibraryProcess
from knft.render.names import TABLE
from knft.runner.clock import MonotonicClock
from knft.source.directory import DirectorySource, Scan
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon
from knft.sync.memory import tune_collector

log = logging.getLogger("knft")


class Control(Struct, frozen=True):
    """What is to be done with the settings, and what they were read from."""

    manifests: str | None = None
    once: bool = False
    init_only: bool = False
    config_path: str | None = None
    config_content: bytes = b""
    flags: dict[str, str] = {}
    """The flags that were given, for /flagz."""


def run(settings: Settings, control: Control) -> None:
    """Sync, and unless ``once`` is set follow the manifests until SIGTERM or SIGINT."""
    if control.manifests is None or control.init_only:
        _refuse_the_cluster()
    stop = threading.Event() if control.once else stop_on_signals()
    tune_collector()
    config = settings.config
    source = DirectorySource(control.manifests)
    first = source.scan()
    require_privilege()
    others = ForeignChanges(TABLE)
    library = LibraryProcess(others.own_ports)
    probe(library)
    daemon = live_daemon(config, library)
    daemon.note_addresses(local_addresses())
    _take_in(daemon, first)
    if control.once:
        succeeded = daemon.sync()
        warn_of_leftovers()
        sys.exit(0 if succeeded else 1)
    # Beside the first sync, which does not wait for iptables-save.
    threading.Thread(target=warn_of_leftovers, name="leftovers", daemon=True).start()
    followers: list[_Following] = [_Follower(daemon, source, stop)]
    if control.config_path is not None:
        followers.append(_ConfigFollower(control.config_path, control.config_content, stop))
    for follower in followers:
        follower.start()
    threading.Thread(target=daemon.listen, args=[others, stop], name="others", daemon=True).start()
    threading.Thread(target=daemon.guard, args=[library, stop], name="guard", daemon=True).start()
    daemon.run(config.min_sync_period, config.sync_period, MonotonicClock(), stop)
    for follower in followers:
        if follower.failure is not None:
            raise follower.failure
    log.info("stopped; the rules stay in place")


def _refuse_the_cluster() -> NoReturn:
    """Say what is not there yet: following an API server, and what --init-only does for it."""
    msg = "an API server cannot be followed yet; give --manifests DIR, and leave --init-only out"
    raise UnsupportedError(msg)


def _take_in(daemon: Daemon, scan: Scan) -> None:
    for problem in scan.problems:
        log.warning("%s", problem)
    for remark in scan.remarks:
        log.info("%s", remark)
    daemon.handle(scan.changes)


class _Following(threading.Thread):
    """A thread that ends the daemon, loudly, when it fails: who no longer follows must not look healthy."""

    def __init__(self, name: str, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._stop_event = stop
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            self.failure = error
            self._stop_event.set()

    def _follow(self) -> None:
        raise NotImplementedError


class _Follower(_Following):
    """Hands on what the directory and the machine's addresses become, until ``stop`` is set.

    An error that knft knows is said, and the next look may find better; any other ends the daemon.
    """

    def __init__(self, daemon: Daemon, source: DirectorySource, stop: threading.Event) -> None:
        super().__init__("manifests", stop)
        self._daemon = daemon
        self._source = source

    def _follow(self) -> None:
        for _ in self._source.watch(self._stop_event):
            self._look()

    def _look(self) -> None:
        try:
            _take_in(self._daemon, self._source.scan())
            self._daemon.note_addresses(local_addresses())
        except KnftError as error:
            log.warning("%s", error)


class _ConfigFollower(_Following):
    """Ends the daemon when the configuration file holds something else (I.4)."""

    def __init__(self, path: str, content: bytes, stop: threading.Event) -> None:
        super().__init__("configuration", stop)
        self._path, self._content = path, content

    def _follow(self) -> None:
        wait_for_change(self._path, self._content, self._stop_event)
