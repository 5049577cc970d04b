"""Posts events, which users see in ``kubectl describe`` (docs/behaviour/configuration.md#events).

A thread of its own sends them, so that nothing waits for the API server. An event that cannot be sent is dropped and
counted, and a repeated one is sent rarely, to spare the API server.
"""

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TypeVar

import msgspec

from knft.apiserver.api_client import ApiClient
from knft.apiserver.error_text import one_line
from knft.apiserver.limits import TokenBucket
from knft.errors import ApiServerError, ApiStatusError
from knft.memory_errors import exit_if_out_of_memory
from knft.model.events import Event, ObjectReference

log = logging.getLogger("knft")
Key = TypeVar("Key")
Value = TypeVar("Value")

CONTROLLER = "knft"
"""The reporting controller."""
MAX_NOTE = 1000
"""The longest note in bytes; the API accepts 1 024."""
REPEAT_SECONDS = 600.0
"""Within this time after an event, equal ones are counted and not sent."""
_QUEUE_SIZE = 64
_ATTEMPTS, _RETRY_SECONDS = 3, 1.0
_STOP_CHECK_SECONDS = 1.0
_MAX_REMEMBERED = 4096
_MAX_NAME_PREFIX = 230


class EventCorrelator:
    """Limits repeated events, as client-go's EventCorrelator does. It performs no I/O: callers pass the time."""

    def __init__(self) -> None:
        """Start without events."""
        self._sent: OrderedDict[Event, tuple[float, int]] = OrderedDict()
        self._object_buckets: OrderedDict[ObjectReference, TokenBucket] = OrderedDict()
        self._total_bucket = TokenBucket(qps=0.2, burst=50)
        self._limited = 0

    def correlate(self, event: Event, now: float) -> Event | None:
        """Return the event as it has to be sent, None if it must not be sent."""
        sent_at, suppressed = self._sent.get(event, (float("-inf"), 0))
        bucket = self._object_buckets.setdefault(event.regarding, TokenBucket(qps=1 / 300, burst=10))
        _mark_recent(self._sent, event)
        _mark_recent(self._object_buckets, event.regarding)
        is_repeated = now - sent_at < REPEAT_SECONDS
        if is_repeated or not bucket.allow(now) or not self._total_bucket.allow(now):
            self._limited += not is_repeated
            self._sent[event] = (sent_at, suppressed + 1)
            return None
        self._sent[event] = (now, 0)
        suffix = f" (repeated; {suppressed} more since the last event)" if suppressed else ""
        return msgspec.structs.replace(event, note=_truncate(event.note, MAX_NOTE - len(suffix)) + suffix)

    def take_limited(self) -> int:
        """Return how many events were not sent because of the limits since the last call, repeated ones excluded."""
        count, self._limited = self._limited, 0
        return count


def _mark_recent(remembered: "OrderedDict[Key, Value]", key: Key) -> None:
    """Move a key to the end; drop the one that was used least recently if there are too many."""
    if key in remembered:
        remembered.move_to_end(key)
    if len(remembered) > _MAX_REMEMBERED:
        remembered.popitem(last=False)


def _truncate(note: str, max_bytes: int) -> str:
    """Return a note in one line of at most ``max_bytes``."""
    return one_line(note, MAX_NOTE).encode()[:max_bytes].decode(errors="ignore")


def as_json(event: Event, node_name: str, event_time: datetime) -> bytes:
    """Return an event as an encoded ``events.k8s.io/v1`` Event."""
    regarding = event.regarding
    nanoseconds = int(event_time.timestamp() * 1_000_000) * 1000
    return msgspec.json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:_MAX_NAME_PREFIX].rstrip('.-')}.{nanoseconds:x}",
                "namespace": _namespace(event),
            },
            "eventTime": event_time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": CONTROLLER,
            "reportingInstance": node_name,
            "regarding": {key: value for key, value in msgspec.to_builtins(regarding).items() if value},
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
        }
    )


def _namespace(event: Event) -> str:
    return event.regarding.namespace or "default"


class EventPoster:
    """Sends events; ``post`` may be called from any thread, and never waits."""

    def __init__(
        self,
        client: ApiClient,
        node_name: str,
        now: Callable[[], float] = time.monotonic,
        *,
        on_drop: Callable[[], None] = lambda: None,
    ) -> None:
        """Send nothing yet; ``now`` returns seconds, ``on_drop`` is called for each dropped event."""
        self._client = client
        self._node_name = node_name
        self._now = now
        self._on_drop = on_drop
        self._unreported_drops = 0
        self._correlator = EventCorrelator()
        self._lock = threading.Lock()
        self._queue: queue.Queue[Event] = queue.Queue(_QUEUE_SIZE)

    def post(self, event: Event) -> None:
        """Queue an event, unless an equal one was sent recently or the queue is full."""
        with self._lock:
            accepted = self._correlator.correlate(event, self._now())
        if accepted is None:
            return
        try:
            self._queue.put_nowait(accepted)
        except queue.Full:
            log.debug("event %s about %s dropped: the queue is full", event.reason, event.regarding)
            self._record_drop()

    def _record_drop(self) -> None:
        with self._lock:
            self._unreported_drops += 1
        self._on_drop()

    def _report_drops(self) -> None:
        with self._lock:
            count, self._unreported_drops = self._unreported_drops, 0
            limited = self._correlator.take_limited()
        if count:
            log.warning("dropped %d events because the API server did not accept them", count)
        if limited:
            log.warning("did not send %d events: knft sends at most 50 at once, then 12 in a minute", limited)

    def start(self, stop: threading.Event) -> None:
        """Send queued events until ``stop`` is set; events that are queued then are dropped."""
        threading.Thread(target=self._send_all, args=[stop], name="events", daemon=True).start()

    def _send_all(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                event = self._queue.get(timeout=_STOP_CHECK_SECONDS)
            except queue.Empty:
                continue
            try:
                self._send(event, stop)
            except Exception as error:
                exit_if_out_of_memory(error)
                log.exception("unexpected error while sending an event; please report it")

    def _send(self, event: Event, stop: threading.Event) -> None:
        data = as_json(event, self._node_name, datetime.now(UTC))
        path = f"/apis/events.k8s.io/v1/namespaces/{_namespace(event)}/events"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._client.request("POST", path, body=data)
            except ApiServerError as error:
                log.debug("cannot send event %s about %s: %s", event.reason, event.regarding, error)
                if not _is_retriable(error) or attempt == _ATTEMPTS or stop.wait(_RETRY_SECONDS * attempt):
                    self._record_drop()
                    return
            else:
                self._report_drops()
                return


def _is_retriable(error: ApiServerError) -> bool:
    if not isinstance(error, ApiStatusError):
        return True
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
