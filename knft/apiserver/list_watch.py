"""ListWatch: decides which request comes next for one resource, from the responses so far.

It performs no I/O and reads no clock; the random generator is injected. A resource is listed once, as a streaming list
if the server supports it and in pages otherwise, and then watched from that resource version on. Each response advances
the resource version from which the next watch continues.
"""

import enum
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from msgspec import Struct

from knft.apiserver.limits import Backoff
from knft.apiserver.resources import Resource
from knft.errors import ApiServerError, ApiStatusError

PAGE_SIZE = 500
"""The number of objects in a page, client-go's default."""
_JITTER = 0.2
_WARN_AT = 2
"""After this many consecutive expiries, or consecutive empty and short watches, knft logs a warning."""


class WatchTimeouts(Struct, frozen=True):
    """Timeouts of lists and watches, in seconds."""

    min_watch: float = 300.0
    """The shortest duration of a watch. It is random, so that not all clients renew their watches at the same time."""
    max_watch: float = 600.0
    """The longest duration of a watch."""
    idle_grace: float = 30.0
    """A watch counts as hung if it is silent for this much longer than its duration."""
    list_idle: float = 30.0
    """A list counts as hung if it is silent for this long."""
    missing_resource_retry: float = 600.0
    """When to request a resource again that the API does not have."""
    short_lived: float = 5.0
    """A watch that ends within this time counts as a failure, since client and server would loop otherwise."""
    regular_idle: float = 180.0
    """A watch counts as hung if it is silent for this long, if the server sends bookmarks regularly."""
    repeated_expiry: float = 120.0
    """If a resource version expires again within this time, the next list waits for a backoff."""


class RequestKind(enum.Enum):
    """The kinds of requests."""

    STREAMING_LIST = "streaming list"
    LIST_PAGE = "list"
    WATCH = "watch"


class ListWatchRequest(Struct, frozen=True):
    """One request.

    The server ends it after ``server_timeout`` seconds; it counts as hung after ``idle_timeout`` seconds of silence.
    """

    kind: RequestKind
    path: str
    query: tuple[tuple[str, str], ...]
    idle_timeout: float
    server_timeout: float = 0.0


class RetryWhen(enum.Enum):
    """When the next request is sent."""

    IMMEDIATELY = "immediately"
    BACK_OFF = "after a backoff"
    AFTER_DELAY = "after a delay with jitter"
    RETRY_AFTER = "after the delay that the server requested, and not before a backoff"


class RetryDecision(NamedTuple):
    """The reaction to a response: when to send the next request, and the problem, "" if there is none."""

    when: RetryWhen
    problem: str = ""
    delay: float = 0.0
    affects_server: bool = True
    """Whether the problem is the server's as a whole, not this resource's alone."""
    problem_kind: str = ""
    """The kind of the problem: the HTTP status; "" if ``problem`` itself is it. A repeated kind is rarely logged."""
    resets_backoff: bool = False
    """Whether the next backoff starts with the initial delay, because requests have worked for a while."""
    warning: str = ""
    """A text to log once; unlike a problem it does not last."""


class ListWatch:
    """The sequence of lists and watches of one resource."""

    def __init__(
        self, resource: Resource, random_fraction: Callable[[], float], timeouts: WatchTimeouts | None = None
    ) -> None:
        """Start with a list; ``random_fraction`` returns numbers from 0 to 1."""
        self.resource = resource
        self.timeouts = timeouts or WatchTimeouts()
        self._random_fraction = random_fraction
        self._path_index = 0
        self._missing_paths = 0
        """How many API versions of the resource were not found in a row; each version has its own path."""
        self._streaming_lists = True
        """Whether the server is assumed to support streaming lists."""
        self._field_selector = resource.field_selector
        self._resource_version: str | None = None
        """The version from which to continue; None if the next list has to get a new one."""
        self._has_listed = False
        """Whether the list is complete, so that a watch comes next."""
        self._continue_token = ""
        self._without_pages = False
        """Whether to list without pages, because the pages of the last list expired."""
        self._expiries = 0
        """How many times in a row a resource version was unusable, within ``repeated_expiry`` of the time before."""
        self._expired_at = 0.0
        self._empty_watches = 0
        """How many watches in a row ended at once and without events."""

    @property
    def path(self) -> str:
        """The URL path of the resource, in the version of the API that is tried now."""
        return self.resource.paths[self._path_index]

    @property
    def next_page_is_first(self) -> bool:
        """Whether the next page is the first of a list."""
        return not self._has_listed and not self._continue_token

    def next_request(self) -> ListWatchRequest:
        """Return the next request."""
        timeouts = self.timeouts
        seconds = timeouts.min_watch + (timeouts.max_watch - timeouts.min_watch) * self._random_fraction()
        watch = [("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(int(seconds)))]
        version = [("resourceVersion", self._resource_version)] if self._resource_version is not None else []
        if self._has_listed:
            return self._request(RequestKind.WATCH, [*watch, *version], seconds + timeouts.idle_grace, seconds)
        if self._streaming_lists:
            initial = [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
            query = [*watch, *initial, *version]
            return self._request(RequestKind.STREAMING_LIST, query, timeouts.list_idle, seconds)
        limit = [("limit", str(PAGE_SIZE))]
        if self._continue_token:
            query = [*limit, ("continue", self._continue_token)]
            return self._request(RequestKind.LIST_PAGE, query, timeouts.list_idle)
        match = [*version, ("resourceVersionMatch", "NotOlderThan")] if version else []
        pages = [] if self._without_pages else limit
        return self._request(RequestKind.LIST_PAGE, [*pages, *match], timeouts.list_idle)

    def _request(
        self, kind: RequestKind, query: list[tuple[str, str]], idle_timeout: float, server_timeout: float = 0.0
    ) -> ListWatchRequest:
        selectors = [("labelSelector", self.resource.label_selector), ("fieldSelector", self._field_selector)]
        used = [(name, value) for name, value in selectors if value]
        return ListWatchRequest(kind, self.path, (*used, *query), idle_timeout, server_timeout)

    def on_response(self) -> None:
        """Record that the server has started a successful response."""
        self._missing_paths = 0

    def on_page(self, resource_version: str, continue_token: str) -> bool:
        """Record a page of a list; return whether it is the last."""
        self._continue_token = continue_token
        if continue_token:
            return False
        self.on_listed(resource_version)
        return True

    def on_listed(self, resource_version: str) -> None:
        """Record that the list is complete, as of a resource version."""
        self._has_listed, self._resource_version = True, resource_version or None
        self._without_pages = False

    def on_resource_version(self, resource_version: str) -> None:
        """Record that all changes up to a resource version have been received."""
        if self._has_listed and resource_version:
            self._resource_version = resource_version

    def on_stream_end(self, request: ListWatchRequest, lasted: float, *, empty: bool = False) -> RetryDecision:
        """Decide on the next request after the server has ended a stream without an error after ``lasted`` seconds.

        ``empty`` tells that nothing was received.
        """
        if request.kind is RequestKind.STREAMING_LIST and not self._has_listed:
            return self.fall_back_to_pages(lasted)
        self._empty_watches = self._empty_watches + 1 if empty and lasted < self.timeouts.short_lived else 0
        if lasted < self.timeouts.short_lived:
            repeated = self._empty_watches >= _WARN_AT
            problem = "the server ends watches as soon as they start" if repeated else ""
            return RetryDecision(RetryWhen.BACK_OFF, problem)
        # A server that shuts down ends the watches of all clients at once: they must not all come back at once.
        if lasted >= request.server_timeout - 1:
            return RetryDecision(RetryWhen.IMMEDIATELY, resets_backoff=True)
        return RetryDecision(RetryWhen.AFTER_DELAY, delay=1.0, resets_backoff=True)

    def fall_back_to_pages(self, lasted: float) -> RetryDecision:
        """Use paged lists from now on: the server supports watches, but not streaming lists."""
        self._streaming_lists = False
        if lasted < self.timeouts.list_idle:
            return RetryDecision(RetryWhen.IMMEDIATELY)
        return RetryDecision(RetryWhen.AFTER_DELAY, delay=1.0)

    def on_error(
        self,
        request: ListWatchRequest,
        error: ApiServerError,
        *,
        lasted: float | None = None,
        hung_listing: bool = False,
        now: float = 0.0,
    ) -> RetryDecision:
        """Decide what follows on an error at ``now``.

        ``lasted`` is for how many seconds the response had been arriving, None if there was none. ``hung_listing``
        tells that a streaming list stopped before it was complete.
        """
        if isinstance(error, ApiStatusError) and _is_expired(error):
            return self._unusable_version(error, now)
        if request.kind is RequestKind.STREAMING_LIST and hung_listing:
            return self.fall_back_to_pages(0.0)
        decision = RetryDecision(RetryWhen.BACK_OFF, str(error))
        if isinstance(error, ApiStatusError):
            decision = self._refused(request, error)._replace(problem_kind=str(error.status))
        worked = lasted is not None and lasted >= self.timeouts.short_lived
        is_watch = self._has_listed and request.kind is not RequestKind.LIST_PAGE
        if worked and is_watch and decision.when is RetryWhen.BACK_OFF:
            return decision._replace(when=RetryWhen.AFTER_DELAY, delay=1.0, resets_backoff=True)
        return decision

    def _refused(self, request: ListWatchRequest, error: ApiStatusError) -> RetryDecision:
        match error.status:
            case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
                return self._not_supported(request, error)
            case HTTPStatus.NOT_FOUND:
                return self._not_found(error)
            case HTTPStatus.FORBIDDEN:
                verb = "list" if request.kind is RequestKind.LIST_PAGE else "watch"
                remedy = "apply deploy/kustomize/base/rbac.yaml"
                problem = f"not allowed to {verb} {self.resource.name}: {error.server_message}; {remedy}"
                return RetryDecision(RetryWhen.BACK_OFF, problem, affects_server=False)
            case _ if error.retry_after:
                problem = f"{error}; the server asks for a retry after {error.retry_after:g} s"
                return RetryDecision(RetryWhen.RETRY_AFTER, problem, error.retry_after)
            case _:
                return RetryDecision(RetryWhen.BACK_OFF, str(error))

    def _unusable_version(self, error: ApiStatusError, now: float) -> RetryDecision:
        """List again: the server has compacted the changes since the resource version, or does not have it yet."""
        was_new_list = self._resource_version is None and not self._continue_token
        if self._continue_token:
            self._without_pages = True
        self._restart_list()
        repeated = self._expiries > 0 and now - self._expired_at < self.timeouts.repeated_expiry
        self._expiries, self._expired_at = (self._expiries + 1 if repeated else 1), now
        if was_new_list:
            return RetryDecision(RetryWhen.BACK_OFF, str(error), problem_kind=str(error.status))
        if not repeated:
            return RetryDecision(RetryWhen.AFTER_DELAY, delay=1.0)
        text = f"resource versions of {self.resource.name} expire repeatedly ({error}); listing again with backoff"
        return RetryDecision(RetryWhen.BACK_OFF, warning=text if self._expiries == _WARN_AT else "")

    def _restart_list(self) -> None:
        self._has_listed, self._resource_version, self._continue_token = False, None, ""

    def _not_supported(self, request: ListWatchRequest, error: ApiStatusError) -> RetryDecision:
        """Stop using what an old server does not support: first streaming lists, then the field selector."""
        message = error.server_message.lower()
        about_fields = "field label" in message or "field selector" in message or "fieldselector" in message
        about_streams = "sendinitialevents" in message or "resourceversionmatch" in message
        if request.kind is RequestKind.STREAMING_LIST and (about_streams or not about_fields):
            self._streaming_lists = False
            return RetryDecision(RetryWhen.IMMEDIATELY)
        if self._field_selector and self.resource.label_selector and not about_streams:
            self._field_selector = ""
            self._has_listed, self._continue_token = False, ""
            return RetryDecision(RetryWhen.IMMEDIATELY)
        self._restart_list()
        return RetryDecision(RetryWhen.BACK_OFF, str(error), affects_server=False)

    def _not_found(self, error: ApiStatusError) -> RetryDecision:
        """Try the next version of the API; a resource that no version has is missing."""
        self._missing_paths += 1
        self._path_index = (self._path_index + 1) % len(self.resource.paths)
        self._restart_list()
        if self._missing_paths < len(self.resource.paths):
            return RetryDecision(RetryWhen.IMMEDIATELY)
        if self.resource.optional:
            self._missing_paths = 0
            delay = self.timeouts.missing_resource_retry
            return RetryDecision(RetryWhen.AFTER_DELAY, delay=delay, affects_server=False)
        problem = f"{self.resource.name} not found: {error}; is this an API server?"
        return RetryDecision(RetryWhen.BACK_OFF, problem, affects_server=False)


def retry_delay(decision: RetryDecision, backoff: Backoff, random_fraction: Callable[[], float], now: float) -> float:
    """Return how many seconds to wait before the next request; ``random_fraction`` returns numbers from 0 to 1."""
    if decision.resets_backoff:
        backoff.reset()
    match decision.when:
        case RetryWhen.IMMEDIATELY:
            return 0.0
        case RetryWhen.AFTER_DELAY:
            return jittered(decision.delay, random_fraction)
        case RetryWhen.BACK_OFF:
            return backoff.next_delay(now)
        case RetryWhen.RETRY_AFTER:
            requested = decision.delay + max(1.0, decision.delay * _JITTER) * random_fraction()
            return max(requested, backoff.next_delay(now))


def jittered(seconds: float, random_fraction: Callable[[], float]) -> float:
    """Return a delay with jitter: up to a fifth longer, or anything up to ``seconds`` if that is a second or less."""
    fraction = random_fraction()
    return seconds * fraction if seconds <= 1 else seconds * (1 + _JITTER * fraction)


def _is_expired(error: ApiStatusError) -> bool:
    if error.status == HTTPStatus.GONE or error.reason in ("Expired", "Gone"):
        return True
    # etcd was restored from an older backup, and has not reached the resource version.
    message = error.server_message.lower()
    return error.status == HTTPStatus.GATEWAY_TIMEOUT and "resource version" in message and "large" in message
