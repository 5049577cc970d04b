"""Events: what people see of knft in ``kubectl describe`` (I.10), sent by a thread of its own, never waited for.

An event that cannot be sent is dropped, and one that comes again and again is sent rarely: the API server has other
work.
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
from msgspec import Struct

from knft.apiserver.connection import Connection
from knft.apiserver.limits import TokenBucket
from knft.apiserver.said import in_one_line
from knft.errors import ClusterError, RefusedError

log = logging.getLogger("knft")
Key = TypeVar("Key")
Value = TypeVar("Value")

CONTROLLER = "knft"
"""Who reports: not kube-proxy, whose reasons and actions these are otherwise."""
MAX_NOTE = 1000
"""How many bytes of a note are sent; the API takes 1 024."""
SAME_AGAIN_SECONDS = 600.0
"""How long after an event the same one is not sent again, but counted."""
_WAITING = 64
_TRIES, _PAUSE_SECONDS = 3, 1.0
_MAX_KNOWN = 4096
_LONGEST_NAME_PART = 230


class Regarding(Struct, frozen=True, rename="camel"):
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


class Event(Struct, frozen=True):
    """Something that people should see; ``note`` may be anybody's words."""

    regarding: Regarding
    reason: str
    action: str
    note: str = ""
    warning: bool = True


class Filter:
    """Decides which events are worth sending. Pure: the time is passed in."""

    def __init__(self) -> None:
        """Know of none yet."""
        self._known: OrderedDict[Event, tuple[float, int]] = OrderedDict()
        self._objects: OrderedDict[Regarding, TokenBucket] = OrderedDict()
        self._all = TokenBucket(qps=0.2, burst=50)

    def pass_on(self, event: Event, now: float) -> Event | None:
        """Return the event as it is to be sent, None where it is not."""
        sent, count = self._known.get(event, (float("-inf"), 0))
        bucket = self._objects.setdefault(event.regarding, TokenBucket(qps=1 / 300, burst=10))
        _keep_last(self._known, event)
        _keep_last(self._objects, event.regarding)
        if now - sent < SAME_AGAIN_SECONDS or not bucket.allows(now) or not self._all.allows(now):
            self._known[event] = (sent, count + 1)
            return None
        self._known[event] = (now, 0)
        again = f" (again; {count} more times meanwhile)" if count else ""
        return msgspec.structs.replace(event, note=_cut(event.note, MAX_NOTE - len(again)) + again)


def _keep_last(known: "OrderedDict[Key, Value]", key: Key) -> None:
    if key in known:
        known.move_to_end(key)
    if len(known) > _MAX_KNOWN:
        known.popitem(last=False)


def _cut(note: str, most: int) -> str:
    """Return a note as plain text of so many bytes."""
    return in_one_line(note, MAX_NOTE).encode()[:most].decode(errors="ignore")


def as_json(event: Event, node_name: str, moment: datetime) -> bytes:
    """Return the ``events.k8s.io/v1`` Event that is sent."""
    regarding = event.regarding
    nanoseconds = int(moment.timestamp() * 1_000_000) * 1000
    return msgspec.json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:_LONGEST_NAME_PART].rstrip('.-')}.{nanoseconds:x}",
                "namespace": _namespace(event),
            },
            "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
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
    """Sends events; ``post`` comes from any thread, and never waits."""

    def __init__(self, connection: Connection, node_name: str, now: Callable[[], float] = time.monotonic) -> None:
        """Send nothing yet; ``now`` gives seconds."""
        self._connection = connection
        self._node_name = node_name
        self._now = now
        self._filter = Filter()
        self._lock = threading.Lock()
        self._waiting: queue.Queue[Event] = queue.Queue(_WAITING)

    def post(self, event: Event) -> None:
        """Have an event sent, unless it was sent a short while ago, or too many are waiting."""
        with self._lock:
            wanted = self._filter.pass_on(event, self._now())
        if wanted is None:
            return
        try:
            self._waiting.put_nowait(wanted)
        except queue.Full:
            log.debug("the event %s is dropped: too many are waiting", event.reason)

    def start(self, stop: threading.Event) -> None:
        """Send what is posted until ``stop`` is set; what is waiting then is dropped."""
        threading.Thread(target=self._send_all, args=[stop], name="events", daemon=True).start()

    def _send_all(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                event = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            try:
                self._send(event, stop)
            except Exception:
                log.exception("an event was not sent, unexpectedly; please report this")

    def _send(self, event: Event, stop: threading.Event) -> None:
        data = as_json(event, self._node_name, datetime.now(UTC))
        path = f"/apis/events.k8s.io/v1/namespaces/{_namespace(event)}/events"
        for attempt in range(1, _TRIES + 1):
            try:
                self._connection.request("POST", path, body=data)
            except ClusterError as error:
                log.debug("the event %s was not sent: %s", event.reason, error)
                if not _may_succeed(error) or stop.wait(_PAUSE_SECONDS * attempt):
                    return
            else:
                return


def _may_succeed(error: ClusterError) -> bool:
    if not isinstance(error, RefusedError):
        return True
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
