"""Reflector: lists and watches one resource until knft shuts down, as client-go's Reflector does.

It sends the requests that ``ListWatch`` chooses, decodes the responses with ``ObjectDecoder``, keeps the objects in a
``Store``, and passes the changes on.
"""

import logging
import threading
from collections.abc import Callable, Iterable

from knft.apiserver.api_client import MAX_RETRY_AFTER, ApiClient, Stream, decode_status
from knft.apiserver.decoder import Bookmark, ObjectDecoder, ObjectEvent, WatchError, WatchEvents
from knft.apiserver.error_text import one_line
from knft.apiserver.limits import Backoff, IdleTimeout
from knft.apiserver.list_watch import (
    ListWatch,
    ListWatchRequest,
    RequestKind,
    RetryDecision,
    RetryWhen,
    WatchTimeouts,
    retry_delay,
)
from knft.apiserver.resources import Resource
from knft.apiserver.store import Store
from knft.apiserver.watch_problems import WatchProblems
from knft.errors import ApiServerError, ApiStatusError
from knft.model.names import NamespacedName
from knft.model.objects import ObjectChange
from knft.sync.lasting_problems import log_ended

log = logging.getLogger("knft")

MAX_EVENT_BYTES = 64 << 20
"""The size of the largest event that is read."""
MAX_WARNINGS = 50
"""How many warnings about objects are logged at once."""

OnInvalidObject = Callable[[NamespacedName, str], None]
"""Called with the name of an invalid object and the logged text."""


def ignore_invalid_object(_: NamespacedName, __: str) -> None:
    """Do nothing: the log has the warning."""


class _NoStreamingListError(ApiServerError):
    """The server sends a watch without the end of its initial events: it does not support streaming lists."""


class Reflector:
    """Lists and watches one resource."""

    def __init__(
        self,
        resource: Resource,
        client: ApiClient,
        store: Store,
        *,
        handle_changes: Callable[[list[ObjectChange]], None],
        problems: WatchProblems,
        random_fraction: Callable[[], float],
        now: Callable[[], float],
        timeouts: WatchTimeouts | None = None,
        on_invalid_object: OnInvalidObject = ignore_invalid_object,
    ) -> None:
        """Send nothing yet; ``random_fraction`` returns numbers from 0 to 1, ``now`` seconds."""
        self.resource = resource
        self.listed = threading.Event()
        """Set once the resource has been listed."""
        self.listed_or_unavailable = threading.Event()
        """Set once the resource has been listed, or is known to be missing or forbidden."""
        self.last_message_at: float | None = None
        """When the server's last answer, event or bookmark arrived; None before that."""
        self._client = client
        self._store = store
        self._handle_changes = handle_changes
        self._on_invalid_object = on_invalid_object
        self._problems = problems
        self._random_fraction = random_fraction
        self._now = now
        self._decoder = ObjectDecoder(resource.kind)
        self._list_watch = ListWatch(resource, random_fraction, timeouts)
        self._backoff = Backoff(random_fraction)
        self._idle_timeout = IdleTimeout(self._list_watch.timeouts.regular_idle)
        self._reported_missing = False
        self._response_started_at: float | None = None
        """When the current response started; None before that."""
        self._is_listing = False
        """Whether the current stream is a list that is not complete yet."""
        self._received_events = False
        """Whether the current stream has brought anything."""
        self._problem_needs_events = False
        """Whether the start of a response is no proof that the problem is over: only an event clears the problem.

        Set if the last stream failed within ``short_lived`` seconds, or if watches repeatedly end that early.
        """

    def run(self, stop: threading.Event) -> None:
        """List and watch until ``stop`` is set and the client is closed."""
        while not stop.is_set():
            delay = self._step(stop)
            if delay:
                stop.wait(delay)

    def _step(self, stop: threading.Event) -> float:
        """Send one request and handle its response; return how many seconds to wait before the next."""
        request = self._list_watch.next_request()
        self._response_started_at, self._received_events = None, False
        self._is_listing = request.kind is RequestKind.STREAMING_LIST
        started = self._now()
        try:
            self._send(request)
        except _NoStreamingListError:
            decision = self._list_watch.fall_back_to_pages(self._now() - started)
        except ApiServerError as error:
            if stop.is_set():
                return 0.0
            decision = self._failed(request, error)
        else:
            if request.kind is RequestKind.LIST_PAGE:
                decision = RetryDecision(RetryWhen.IMMEDIATELY)
            else:
                decision = self._stream_ended(request, self._now() - started)
        if decision.warning:
            log.warning("%s", decision.warning)
        return retry_delay(decision, self._backoff, self._random_fraction, self._now())

    def _stream_ended(self, request: ListWatchRequest, lasted: float) -> RetryDecision:
        decision = self._list_watch.on_stream_end(request, lasted, empty=not self._received_events)
        self._problem_needs_events = bool(decision.problem)
        if decision.problem:
            self._problems.set_problem(self.resource.name, decision)
        return decision

    def _failed(self, request: ListWatchRequest, error: ApiServerError) -> RetryDecision:
        now, started_at = self._now(), self._response_started_at
        lasted = now - started_at if started_at is not None else None
        hung = lasted is not None and isinstance(error.__cause__, TimeoutError)
        if hung:
            self._idle_timeout.forget()
        decision = self._list_watch.on_error(
            request, error, lasted=lasted, hung_listing=hung and self._is_listing, now=now
        )
        log.debug("%s: %s failed: %s", self.resource.name, request.kind.value, error)
        failed_soon = lasted is None or lasted < self._list_watch.timeouts.short_lived
        self._problem_needs_events = failed_soon and started_at is not None
        if decision.problem and (failed_soon or isinstance(error, ApiStatusError)):
            self._problems.set_problem(self.resource.name, decision)
        if not decision.affects_server and self.resource.optional:
            self._record_unavailable(error)
        return decision

    def _record_unavailable(self, error: ApiServerError) -> None:
        """Let the start continue without an optional resource."""
        is_known = self.listed.is_set() or self._reported_missing
        if not is_known and not self._problems.problem(self.resource.name):
            self._reported_missing = True
            log.info("the API server has no %s (%s); continuing without them", self.resource.name, error)
        self.listed_or_unavailable.set()

    def _send(self, request: ListWatchRequest) -> None:
        if request.kind is RequestKind.LIST_PAGE:
            self._receive_page(request)
            return
        timeout = request.idle_timeout if self._is_listing else self._idle_timeout.seconds(request.idle_timeout)
        with self._client.stream(request.path, request.query, timeout) as stream:
            self._record_response()
            self._idle_timeout.watch_started(self._now())
            if self._is_listing:
                self._store.begin_list()
            self._receive_stream(request, stream)

    def _record_response(self) -> None:
        self._response_started_at = self.last_message_at = self._now()
        self._list_watch.on_response()
        if not self._problem_needs_events:
            self._problems.clear_problem(self.resource.name)

    def _receive_page(self, request: ListWatchRequest) -> None:
        is_first = self._list_watch.next_page_is_first
        page = self._decoder.decode_page(self._client.request("GET", request.path, request.query))
        self._record_response()
        if is_first:
            self._store.begin_list()
        self._store.add_listed(page.items)
        if self._list_watch.on_page(page.resource_version, page.continue_token):
            self._finish_list()
        self._report_warnings()

    def _receive_stream(self, request: ListWatchRequest, stream: Stream) -> None:
        """Decode each event when its line is complete."""
        buffer = b""
        for piece in stream:
            end = piece.rfind(b"\n") + 1
            if not end:
                buffer += piece
                if len(buffer) > MAX_EVENT_BYTES:
                    msg = f"a watch event has more than {MAX_EVENT_BYTES} bytes"
                    raise ApiServerError(msg)
                continue
            events = self._decoder.decode_events(buffer + piece[:end], is_list=self._is_listing)
            self._handle_events(request, stream, events)
            buffer = piece[end:]
        if buffer.strip():
            msg = "the watch ended in the middle of an event"
            raise ApiServerError(msg)

    def _handle_events(self, request: ListWatchRequest, stream: Stream, events: WatchEvents) -> None:
        self._received_events = True
        self.last_message_at = self._now()
        if self._idle_timeout.data_received(self.last_message_at) and not self._is_listing:
            self._set_watch_timeout(request, stream)
        if self._problem_needs_events:
            self._problem_needs_events = False
            self._problems.clear_problem(self.resource.name)
        batch: list[ObjectEvent] = []
        for item in events.items:
            if isinstance(item, ObjectEvent):
                batch.append(item)
                continue
            self._update_store(batch)
            batch = []
            if isinstance(item, WatchError):
                self._list_watch.on_resource_version(item.resource_version)
                raise _refused_error(item)
            self._handle_bookmark(request, stream, item)
        self._update_store(batch)
        self._list_watch.on_resource_version(events.resource_version)
        self._report_warnings()

    def _update_store(self, events: Iterable[ObjectEvent]) -> None:
        if self._is_listing:
            self._store.add_listed(events)
            return
        changes = list(self._store.apply_events(events))
        if changes:
            self._handle_changes(changes)

    def _handle_bookmark(self, request: ListWatchRequest, stream: Stream, bookmark: Bookmark) -> None:
        if not self._is_listing:
            self._list_watch.on_resource_version(bookmark.resource_version)
            return
        if not bookmark.ends_list:
            msg = "the server does not mark the end of the initial events"
            raise _NoStreamingListError(msg)
        self._is_listing = False
        self._list_watch.on_listed(bookmark.resource_version)
        self._set_watch_timeout(request, stream)
        self._finish_list()

    def _set_watch_timeout(self, request: ListWatchRequest, stream: Stream) -> None:
        """Set how long the stream may be silent, now that it is a watch."""
        longest = request.server_timeout + self._list_watch.timeouts.idle_grace
        stream.set_read_timeout(self._idle_timeout.seconds(longest))

    def _finish_list(self) -> None:
        self._report_warnings()
        changes = self._store.finish_list()
        self._report_warnings()
        if changes:
            self._handle_changes(changes)
        if not self.listed.is_set():
            log.debug("%s: listed %d objects", self.resource.name, len(self._store.objects))
        self._reported_missing = False
        self.listed.set()
        self.listed_or_unavailable.set()

    def _report_warnings(self) -> None:
        warnings, self._store.unreported_warnings = self._store.unreported_warnings, []
        for warning in warnings[:MAX_WARNINGS]:
            log.warning("%s", warning)
        if len(warnings) > MAX_WARNINGS:
            log.warning("%s: %d more warnings not shown", self.resource.name, len(warnings) - MAX_WARNINGS)
        ended, self._store.unreported_ended = self._store.unreported_ended, []
        log_ended(ended)
        invalid, self._store.unreported_invalid = self._store.unreported_invalid, []
        for name, text in invalid:
            self._on_invalid_object(name, text)


def _refused_error(event: WatchError) -> ApiStatusError:
    """Return an ERROR event as an exception."""
    status = decode_status(event.status)
    message = one_line(status.message or "")
    retry_after = status.details.retry_after_seconds if status.details is not None else None
    return ApiStatusError(
        f"the watch ended with {status.code or 'an error'}{': ' + message if message else ''}",
        status.code or 0,
        one_line(status.reason or ""),
        message,
        min(max(retry_after or 0.0, 0.0), MAX_RETRY_AFTER),
    )
