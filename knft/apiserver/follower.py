"""Follower: one resource, listed and watched for ever; a thin shell around Course, Reader and Held."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable

import msgspec

from knft.apiserver.connection import LONGEST_RETRY_AFTER, Connection, Status, Stream
from knft.apiserver.course import Ask, Course, Form, Next, Times, Verdict, pause
from knft.apiserver.held import Held
from knft.apiserver.limits import Backoff, Pulse
from knft.apiserver.objects import Bookmark, Events, Failure, Reader, Seen
from knft.apiserver.resources import Resource
from knft.apiserver.said import in_one_line
from knft.apiserver.troubles import Troubles
from knft.errors import ClusterError, RefusedError
from knft.model.names import NamespacedName
from knft.model.objects import Change

log = logging.getLogger("knft")

LONGEST_EVENT = 64 << 20
"""How many bytes of one event are waited for."""
MAX_REMARKS = 50
"""How many sentences about objects are said at once."""

LeftOut = Callable[[NamespacedName, str], None]
"""Is told of an object that cannot be meant, and of what the log says of it."""


def nobody_hears(_: NamespacedName, __: str) -> None:
    """Do nothing: the log has it."""


class _NoListError(ClusterError):
    """The server watches, and does not list while it does so."""


class Follower:
    """Follows one resource, and hands on what changes."""

    def __init__(
        self,
        resource: Resource,
        connection: Connection,
        held: Held,
        *,
        hand_on: Callable[[list[Change]], None],
        troubles: Troubles,
        draw: Callable[[], float],
        now: Callable[[], float],
        times: Times | None = None,
        left_out: LeftOut = nobody_hears,
    ) -> None:
        """Ask nothing yet; ``draw`` gives numbers from 0 to 1, ``now`` seconds."""
        self.resource = resource
        self.listed = threading.Event()
        """Set once everything has been listed."""
        self.answered = threading.Event()
        """Set once it is listed, or known that this is not to be had."""
        self._connection = connection
        self._held = held
        self._hand_on = hand_on
        self._left_out = left_out
        self._troubles = troubles
        self._draw = draw
        self._now = now
        self._reader = Reader(resource.kind)
        self._course = Course(resource, draw, times)
        self._backoff = Backoff(draw)
        self._pulse = Pulse(self._course.times.regular)
        self._said_missing = False
        self._begun: float | None = None
        """When the server began to answer the present request; None before that."""
        self._listing = False
        """Whether a stream is still listing."""
        self._came = False
        """Whether something has come in the present stream."""
        self._broken = False
        """Whether the last stream broke off soon: an answer that begins means little then."""

    def run(self, stop: threading.Event) -> None:
        """Follow until ``stop`` is set and the connection closed."""
        while not stop.is_set():
            pause = self._step(stop)
            if pause:
                stop.wait(pause)

    def _step(self, stop: threading.Event) -> float:
        """Make one request, and take in what comes; return how many seconds to wait before the next."""
        ask = self._course.ask()
        self._begun, self._listing, self._came = None, ask.form is Form.STREAM, False
        started = self._now()
        try:
            self._carry_out(ask)
        except _NoListError:
            verdict = self._course.no_stream_of_lists(self._now() - started)
        except ClusterError as error:
            if stop.is_set():
                return 0.0
            verdict = self._failed(ask, error)
        else:
            lasted = self._now() - started
            verdict = Verdict(Next.NOW) if ask.form is Form.PAGE else self._ended(ask, lasted)
        if verdict.remark:
            log.warning("%s", verdict.remark)
        return pause(verdict, self._backoff, self._draw, self._now())

    def _ended(self, ask: Ask, lasted: float) -> Verdict:
        verdict = self._course.ended(ask, lasted, empty=not self._came)
        self._broken = bool(verdict.wrong)
        if verdict.wrong:
            self._troubles.begin(self.resource.name, verdict)
        return verdict

    def _failed(self, ask: Ask, error: ClusterError) -> Verdict:
        now = self._now()
        lasted = now - self._begun if self._begun is not None else None
        hung = lasted is not None and isinstance(error.__cause__, TimeoutError)
        if hung:
            self._pulse.missed()
        verdict = self._course.failed(ask, error, lasted=lasted, hung_listing=hung and self._listing, now=now)
        log.debug("%s: %s: %s", self.resource.name, ask.form.value, error)
        soon = lasted is None or lasted < self._course.times.brief
        self._broken = soon and self._begun is not None
        if verdict.wrong and (soon or isinstance(error, RefusedError)):
            self._troubles.begin(self.resource.name, verdict)
        if not verdict.shared:
            self._note_absence(error)
        return verdict

    def _note_absence(self, error: ClusterError) -> None:
        if not self.resource.optional:
            return
        if not self.listed.is_set() and not self._said_missing and not self._troubles.of(self.resource.name):
            self._said_missing = True
            log.info("this API server has no %s (%s); knft goes without", self.resource.name, error)
        self.answered.set()

    def _carry_out(self, ask: Ask) -> None:
        if ask.form is Form.PAGE:
            self._take_page(ask)
            return
        quiet = ask.quiet_seconds if self._listing else self._pulse.quiet_seconds(ask.quiet_seconds)
        with self._connection.stream(ask.path, ask.query, quiet) as stream:
            self._note_answer()
            self._pulse.begin(self._now())
            if self._listing:
                self._held.begin_list()
            self._take_stream(ask, stream)

    def _note_answer(self) -> None:
        self._begun = self._now()
        self._course.answered()
        if not self._broken:
            self._troubles.end(self.resource.name)

    def _take_page(self, ask: Ask) -> None:
        first = self._course.begins_list
        page = self._reader.page(self._connection.request("GET", ask.path, ask.query))
        self._note_answer()
        if first:
            self._held.begin_list()
        self._held.take_listed(page.items)
        if self._course.page(page.version, page.continues):
            self._complete()
        self._say_remarks()

    def _take_stream(self, ask: Ask, stream: Stream) -> None:
        rest = b""
        for piece in stream:
            end = piece.rfind(b"\n") + 1
            if not end:
                rest += piece
                if len(rest) > LONGEST_EVENT:
                    msg = f"an event of its watch has more than {LONGEST_EVENT} bytes"
                    raise ClusterError(msg)
                continue
            self._take_events(ask, stream, self._reader.events(rest + piece[:end]))
            rest = piece[end:]
        if rest.strip():
            msg = "its watch ends in the middle of an event"
            raise ClusterError(msg)

    def _take_events(self, ask: Ask, stream: Stream, events: Events) -> None:
        self._came = True
        if self._pulse.felt(self._now()) and not self._listing:
            self._be_patient(ask, stream)
        if self._broken:
            self._broken = False
            self._troubles.end(self.resource.name)
        seen: list[Seen] = []
        for item in events.items:
            if isinstance(item, Seen):
                seen.append(item)
                continue
            self._take_objects(seen)
            seen = []
            if isinstance(item, Failure):
                self._course.advanced(item.version)
                raise _refusal(item)
            self._take_bookmark(ask, stream, item)
        self._take_objects(seen)
        self._course.advanced(events.version)
        self._say_remarks()

    def _take_objects(self, seen: Iterable[Seen]) -> None:
        if self._listing:
            self._held.take_listed(seen)
            return
        changes = list(self._held.take(seen))
        if changes:
            self._hand_on(changes)

    def _take_bookmark(self, ask: Ask, stream: Stream, bookmark: Bookmark) -> None:
        if not self._listing:
            self._course.advanced(bookmark.version)
            return
        if not bookmark.last:
            msg = "it does not say when everything has been listed"
            raise _NoListError(msg)
        self._listing = False
        self._course.listed(bookmark.version)
        self._be_patient(ask, stream)
        self._complete()

    def _be_patient(self, ask: Ask, stream: Stream) -> None:
        """Wait for more of a watch as long as one may be quiet."""
        stream.be_patient(self._pulse.quiet_seconds(ask.seconds + self._course.times.grace))

    def _complete(self) -> None:
        """Have a list that is complete count."""
        self._say_remarks()
        changes = self._held.end_list()
        if changes:
            self._hand_on(changes)
        if not self.listed.is_set():
            log.debug("%s: %d are there", self.resource.name, len(self._held.objects))
        self._said_missing = False
        self.listed.set()
        self.answered.set()

    def _say_remarks(self) -> None:
        remarks, self._held.new_remarks = self._held.new_remarks, []
        for remark in remarks[:MAX_REMARKS]:
            log.warning("%s", remark)
        if len(remarks) > MAX_REMARKS:
            log.warning("%s: %d more of this kind", self.resource.name, len(remarks) - MAX_REMARKS)
        left_out, self._held.new_left_out = self._held.new_left_out, []
        for name, why in left_out:
            self._left_out(name, why)


def _refusal(failure: Failure) -> RefusedError:
    """Return the error that an ERROR event is."""
    status = Status()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = msgspec.json.decode(failure.status, type=Status)
    said = in_one_line(status.message or "")
    after = status.details.retry_after_seconds if status.details is not None else None
    return RefusedError(
        f"its watch ends with {status.code or 'an error'}{': ' + said if said else ''}",
        status.code or 0,
        in_one_line(status.reason or ""),
        said,
        min(max(after or 0.0, 0.0), LONGEST_RETRY_AFTER),
    )
