"""``knft diff --live --watch``: compares again whenever either side changes, and tells when they part."""

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from knft.cli.diff import compare
from knft.cli.live import LiveSides
from knft.cli.machine import Machine, unnotified
from knft.cli.signals import stop_on_signals
from knft.errors import CaptureError, KnftError
from knft.interpret.compare.report import Report
from knft.kernel.changes import Changes
from knft.kernel.probe import require_privilege
from knft.present.wording import visible
from knft.source.directory import DirectorySource, manifests_signature

POLL_SECONDS = 3.0
"""How often things are looked at that nothing tells of: iptables-legacy, ipsets, virtual servers."""
QUIET_SECONDS, LONGEST_SECONDS = 0.5, 3.0
"""How long nothing may change before a comparison, and how long that is waited for at most."""


class Apart(Struct, frozen=True):
    """One group of packets that fare otherwise; ``service`` is empty where they are nobody's."""

    family: str
    cause: str
    service: str
    sentence: str


class Result(Struct, frozen=True):
    """What a comparison has come to; ``error`` says why there was none."""

    state: str
    left: str = ""
    right: str = ""
    differences: tuple[Apart, ...] = ()
    by_intent: int = 0
    remarks: tuple[str, ...] = ()
    error: str = ""

    @property
    def news(self) -> tuple[object, ...]:
        """What makes it worth a line: how many classes differ by intent does not."""
        return self.state, self.left, self.differences, self.error


class _Line(Struct, frozen=True):
    """A result and when it was found, as programs get it."""

    time: str
    result: Result


class _Stopped(Exception):  # noqa: N818 - it is no error
    """Somebody wants the command to end, in the middle of a comparison."""


def watch_live(options: dict[str, Any], *, as_json: bool) -> None:
    """Compare and tell until SIGTERM or SIGINT; raise KnftError where it cannot begin."""
    require_privilege()
    with Changes() as changes:
        stop = stop_on_signals(changes.wake)
        live = LiveSides(options)
        manifests = [_Manifests(options["paths"], folder, changes, stop) for folder in _folders(options["paths"])]
        for each in manifests:
            each.start()
        try:
            _Watch(live, manifests, changes, stop, as_json=as_json).run()
        except _Stopped:
            return
        finally:
            stop.set()
    for each in manifests:
        if each.failure is not None:
            raise each.failure


class _Watch:
    """The loop of it."""

    def __init__(
        self, live: LiveSides, manifests: list["_Manifests"], changes: Changes, stop: threading.Event, *, as_json: bool
    ) -> None:
        self._live, self._manifests, self._changes, self._stop = live, manifests, changes, stop
        self._as_json = as_json
        self._seen: Machine | None = None
        self._polled: tuple[str, ...] = ()
        self._has_sets = False
        self._told: tuple[object, ...] = ()

    def run(self) -> None:
        while not self._stop.is_set():
            result = self._look()
            if result is not None and result.news != self._told:
                self._told = result.news
                self._tell(result)
            self._wait()

    def _look(self) -> Result | None:
        """Compare, unless both sides are what they were."""
        try:
            self._read_manifests()
            # Before the look, so that what changes during it is a change.
            self._polled = unnotified(with_sets=self._has_sets)
            machine = self._live.look()
            if machine.likeness == self._seen:
                return None
            self._seen, self._has_sets = machine.likeness, bool(machine.sets)
            return _result(compare(self._live.of(machine), self._go_on))
        except KnftError as error:
            self._seen = None  # to be tried again, whatever happens
            return Result("unreadable", error=str(error))

    def _read_manifests(self) -> None:
        changed = [each for each in self._manifests if each.changed.is_set()]
        for each in changed:
            each.changed.clear()
        if changed:
            self._seen = None
            self._live.read_manifests()

    def _go_on(self, _: int, __: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _wait(self) -> None:
        """Wait for a change, by notification or, where there is none, by looking."""
        while not self._stop.is_set():
            if self._changes.wait(POLL_SECONDS):
                self._changes.settle(QUIET_SECONDS, LONGEST_SECONDS)
                return
            try:
                if self._seen is None or unnotified(with_sets=self._has_sets) != self._polled:
                    return
            except CaptureError:
                return  # the look will say it

    def _tell(self, result: Result) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        if self._as_json:
            click.echo(msgspec.json.encode(_Line(now, result)))
        else:
            click.echo("\n".join(_lines(now, result)))


def _result(report: Report) -> Result:
    apart = [
        Apart(family.family, group.cause, group.service, group.sentence)
        for family in report.families
        for group in family.groups
        if group.intent is None
    ]
    return Result(
        state="equal" if report.is_equal else "different",
        left=report.left,
        right=report.right,
        differences=tuple(apart),
        by_intent=sum(family.counts.by_intent for family in report.families),
        remarks=tuple(report.remarks),
    )


def _lines(now: str, result: Result) -> Iterator[str]:
    if result.state == "unreadable":
        yield f"{now} cannot compare: {visible(result.error)}"
        return
    both = f"{visible(result.left)}, and {visible(result.right)}"
    if result.state == "equal":
        intent = f", but for {result.by_intent} classes by intent" if result.by_intent else ""
        yield f"{now} equal: packets fare alike in {both}{intent}"
    else:
        yield f"{now} differs: some packets fare otherwise in {both}"
    for each in result.differences:
        yield f"  {each.family} {visible(each.service) or 'no Service'}, {each.cause}: {visible(each.sentence)}"
    for remark in result.remarks:
        yield f"  remark: {visible(remark)}"


def _folders(paths: tuple[str, ...]) -> set[str]:
    return {path if Path(path).is_dir() else str(Path(path).absolute().parent) for path in paths}


class _Manifests(threading.Thread):
    """Tells when what lies in a folder has changed, as far as it is named."""

    def __init__(self, paths: tuple[str, ...], folder: str, changes: Changes, stop: threading.Event) -> None:
        super().__init__(name=f"manifests-{folder}", daemon=True)
        self._paths, self._source, self._changes, self._stop_event = paths, DirectorySource(folder), changes, stop
        self._signature = manifests_signature(paths)
        self.changed = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for _ in self._source.watch(self._stop_event):
                now = manifests_signature(self._paths)
                if now != self._signature:
                    self._signature = now
                    self.changed.set()
                    self._changes.wake()
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            self.failure = error
            self._stop_event.set()
            self._changes.wake()
