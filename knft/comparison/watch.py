"""Watches the kernel's rules and the manifests, and compares again after each change."""

import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from msgspec import Struct, field

from knft.comparison.compare import compare
from knft.comparison.live import LiveSides
from knft.comparison.machine import MachineState, read_polled_state
from knft.errors import CaptureError, KnftError
from knft.interpret.compare.report import Report
from knft.kernel.host_changes import HostChangeMonitor
from knft.memory_errors import exit_if_out_of_memory
from knft.source.directory import DirectorySource
from knft.source.paths import manifests_signature

POLL_SECONDS = 3.0
"""The interval of reading the state without notifications: iptables-legacy, ipsets and virtual servers."""
QUIET_SECONDS, MAX_SETTLE_SECONDS = 0.5, 3.0
"""A comparison starts after a quiet period without changes, but at most this long after a change."""


class ReportedDifference(Struct, frozen=True):
    """A group of packets with different outcomes; ``service`` is empty if the destination belongs to no Service."""

    family: str
    cause: str
    service: str
    description: str = field(name="sentence")


class WatchResult(Struct, frozen=True):
    """The result of a comparison, printed as JSON; ``state`` is equal, different, nothing or unreadable.

    In state "nothing" the comparison says nothing about any Service, and in state "unreadable" it failed; ``error``
    holds the reason.
    """

    state: str
    left_name: str = field(default="", name="left")
    right_name: str = field(default="", name="right")
    differences: tuple[ReportedDifference, ...] = ()
    expected: int = field(default=0, name="by_intent")
    warnings: tuple[str, ...] = field(default=(), name="remarks")
    error: str = ""
    losing: tuple[str, ...] = ()
    """The Services that some clients reach on the left side alone, because of an expected difference."""

    @property
    def reported_fields(self) -> tuple[object, ...]:
        """The fields whose change makes a result new; the number of expected differences is not one of them."""
        return self.state, self.left_name, self.differences, self.losing, self.error


class _Stopped(Exception):  # noqa: N818 - control flow, not an error
    """Raised to leave a comparison when ``stop`` is set."""


def watch_results(
    live: LiveSides, paths: tuple[str, ...], changes: HostChangeMonitor, stop: threading.Event
) -> Generator[WatchResult, None, None]:
    """Yield the first result and then each new one, until ``stop`` is set; ``paths`` name the manifests.

    A change of the manifests calls ``changes.wake()``. Call ``changes.wake()`` after setting ``stop``, too.
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

    def results(self) -> Iterator[WatchResult]:
        while not self._stop.is_set():
            result = self._compare_if_changed()
            if result is not None and result.reported_fields != self._reported:
                self._reported = result.reported_fields
                yield result
            self._wait_for_change()

    def _compare_if_changed(self) -> WatchResult | None:
        try:
            self._reload_manifests()
            # Polled before the machine is read: a change during the read must be noticed by the next poll.
            self._polled = read_polled_state(with_sets=self._has_sets)
            machine = self._live.read_machine()
            if machine.without_counters == self._compared:
                return None
            self._compared, self._has_sets = machine.without_counters, bool(machine.ipsets)
            return _result(compare(self._live.sides_of(machine), self._stop_if_asked))
        except KnftError as error:
            self._compared = None  # compares again at the next poll
            return WatchResult("unreadable", error=str(error))

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
                if self._compared is None or read_polled_state(with_sets=self._has_sets) != self._polled:
                    return
            except CaptureError:
                return  # the next comparison reports it


def _result(report: Report) -> WatchResult:
    differences = [
        ReportedDifference(family.family, group.cause, group.service, group.description)
        for family in report.families
        for group in family.groups
        if group.reason is None
    ]
    return WatchResult(
        state="different" if report.result == "undecided" else report.result,
        left_name=report.left_name,
        right_name=report.right_name,
        differences=tuple(differences),
        expected=sum(family.counts.expected for family in report.families),
        warnings=tuple(report.warnings),
        error=report.nothing_compared_reason,
        losing=report.losing_services,
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
            exit_if_out_of_memory(error)
            self.failure = error
            self._stop_event.set()
            self._changes.wake()
