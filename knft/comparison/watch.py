"""Watches the rules in force and the manifests, and compares again after each change."""

import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from msgspec import Struct

from knft.comparison.compare import compare
from knft.comparison.live import LiveSides
from knft.comparison.machine import MachineState, poll_unnotified
from knft.errors import CaptureError, KnftError
from knft.interpret.compare.report import Report
from knft.kernel.host_changes import HostChangeMonitor
from knft.source.directory import DirectorySource, manifests_signature

POLL_SECONDS = 3.0
"""How often to read what has no notifications: iptables-legacy, ipsets and virtual servers."""
QUIET_SECONDS, MAX_SETTLE_SECONDS = 0.5, 3.0
"""A comparison starts after a quiet period without changes, but at most this long after a change."""


class Difference(Struct, frozen=True):
    """A group of packets with another outcome on each side; ``service`` is empty if no Service has the frontend."""

    family: str
    cause: str
    service: str
    sentence: str


class Result(Struct, frozen=True):
    """The result of a comparison, printed as JSON; in state "unreadable" ``error`` holds the reason."""

    state: str
    left: str = ""
    right: str = ""
    differences: tuple[Difference, ...] = ()
    by_intent: int = 0
    remarks: tuple[str, ...] = ()
    error: str = ""

    @property
    def reported_part(self) -> tuple[object, ...]:
        """What makes a result a new one. The number of expected differences is not part of it."""
        return self.state, self.left, self.differences, self.error


class _Stopped(Exception):  # noqa: N818 - control flow, not an error
    """Raised to leave a comparison when ``stop`` is set."""


def watch_results(
    live: LiveSides, paths: tuple[str, ...], changes: HostChangeMonitor, stop: threading.Event
) -> Generator[Result, None, None]:
    """Yield the first result and then each new one, until ``stop`` is set; ``paths`` name the manifests.

    ``changes`` is woken when manifests change. Setting ``stop`` has to be followed by ``changes.wake()``.
    """
    watchers = [_ManifestWatcher(paths, folder, changes, stop) for folder in _folders(paths)]
    for watcher in watchers:
        watcher.start()
    try:
        yield from _Watch(live, watchers, changes, stop).results()
    except _Stopped:
        return
    finally:
        stop.set()
    for watcher in watchers:
        if watcher.failure is not None:
            raise watcher.failure


class _Watch:
    def __init__(
        self, live: LiveSides, watchers: list["_ManifestWatcher"], changes: HostChangeMonitor, stop: threading.Event
    ) -> None:
        self._live, self._watchers, self._changes, self._stop = live, watchers, changes, stop
        self._compared: MachineState | None = None
        self._polled: tuple[str, ...] = ()
        self._has_sets = False
        self._reported: tuple[object, ...] = ()

    def results(self) -> Iterator[Result]:
        while not self._stop.is_set():
            result = self._compare_if_changed()
            if result is not None and result.reported_part != self._reported:
                self._reported = result.reported_part
                yield result
            self._wait_for_change()

    def _compare_if_changed(self) -> Result | None:
        try:
            self._reload_manifests()
            # Polled before the machine is read: a change during the read must be noticed by the next poll.
            self._polled = poll_unnotified(with_sets=self._has_sets)
            machine = self._live.read_machine()
            if machine.without_counters == self._compared:
                return None
            self._compared, self._has_sets = machine.without_counters, bool(machine.sets)
            return _result(compare(self._live.sides_of(machine), self._stop_if_asked))
        except KnftError as error:
            self._compared = None  # compares again at the next poll
            return Result("unreadable", error=str(error))

    def _reload_manifests(self) -> None:
        changed = [watcher for watcher in self._watchers if watcher.changed.is_set()]
        for watcher in changed:
            watcher.changed.clear()
        if changed:
            self._compared = None
            self._live.reload_manifests()

    def _stop_if_asked(self, _: int, __: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _wait_for_change(self) -> None:
        """Return after a notification, or when polling finds a change."""
        while not self._stop.is_set():
            if self._changes.wait(POLL_SECONDS):
                self._changes.wait_until_quiet(QUIET_SECONDS, MAX_SETTLE_SECONDS)
                return
            try:
                if self._compared is None or poll_unnotified(with_sets=self._has_sets) != self._polled:
                    return
            except CaptureError:
                return  # the next comparison reports it


def _result(report: Report) -> Result:
    differences = [
        Difference(family.family, group.cause, group.service, group.sentence)
        for family in report.families
        for group in family.groups
        if group.reason is None
    ]
    return Result(
        state="equal" if report.is_equal else "different",
        left=report.left,
        right=report.right,
        differences=tuple(differences),
        by_intent=sum(family.counts.by_intent for family in report.families),
        remarks=tuple(report.remarks),
    )


def _folders(paths: tuple[str, ...]) -> set[str]:
    return {path if Path(path).is_dir() else str(Path(path).absolute().parent) for path in paths}


class _ManifestWatcher(threading.Thread):
    """Sets ``changed`` and wakes the watch when a manifest in a folder changes."""

    def __init__(self, paths: tuple[str, ...], folder: str, changes: HostChangeMonitor, stop: threading.Event) -> None:
        super().__init__(name=f"manifests-{folder}", daemon=True)
        self._paths, self._source, self._changes, self._stop_event = paths, DirectorySource(folder), changes, stop
        self._signature = manifests_signature(paths)
        self.changed = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for _ in self._source.watch(self._stop_event):
                signature = manifests_signature(self._paths)
                if signature != self._signature:
                    self._signature = signature
                    self.changed.set()
                    self._changes.wake()
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            self.failure = error
            self._stop_event.set()
            self._changes.wake()
