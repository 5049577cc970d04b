"""Course: what to ask the API server next about one resource, after all that it has answered so far.

Pure: no socket, no clock; what draws lots is passed in. A resource is listed once, as a stream where the server can do
that and in pages else, and then watched from there; each answer moves the resource version on, from which the next
watch goes on.
"""

import enum
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from msgspec import Struct

from knft.apiserver.limits import Backoff
from knft.apiserver.resources import Resource
from knft.errors import ClusterError, RefusedError

PAGE = 500
"""How many objects a page has."""
_JITTER = 0.2
_SAID_AT = 2
"""At which expiry in a row it is said, and at which watch that ends at once, with nothing in it."""


class Times(Struct, frozen=True):
    """Seconds that following takes its time by.

    A watch ends and is begun anew after ``shortest_watch`` to ``longest_watch``, drawn by lot, so that clients spread;
    one that is quiet ``grace`` longer counts as hung. A stream may be quiet for ``listing`` before everything has been
    listed. Whether a resource that was missing is there now is looked at every ``missing``. A stream that ends sooner
    than ``brief`` counts as a failure: two of them would ask each other without end; one that breaks off later is asked
    for again soon. Where something comes regularly, a watch counts as hung after ``regular`` without anything. What
    expires again within ``expired`` is listed after ever longer pauses.
    """

    shortest_watch: float = 300.0
    longest_watch: float = 600.0
    grace: float = 30.0
    listing: float = 30.0
    missing: float = 600.0
    brief: float = 5.0
    regular: float = 180.0
    expired: float = 120.0


class Form(enum.Enum):
    """How something is asked for."""

    STREAM = "list as a stream"
    PAGE = "list"
    WATCH = "watch"


class Ask(Struct, frozen=True):
    """One request: ``seconds`` is how long the server is told to go on, ``quiet_seconds`` when it counts as hung."""

    form: Form
    path: str
    query: tuple[tuple[str, str], ...]
    quiet_seconds: float
    seconds: float = 0.0


class Next(enum.Enum):
    """When to ask again."""

    NOW = "now"
    BACK_OFF = "back off"
    AFTER = "spread over so many seconds"
    RETRY_AFTER = "not before so many seconds, nor before a back-off ends"


class Verdict(NamedTuple):
    """What a failure leads to: when to ask again, and what is wrong, "" where nothing is."""

    next: Next
    wrong: str = ""
    seconds: float = 0.0
    shared: bool = True
    """Whether the server as a whole is in trouble, not this resource alone."""
    kind: str = ""
    """Of what kind the trouble is: the status, or else the words."""
    anew: bool = False
    """Whether the next pause after a failure is the first one again: something has worked for a while."""
    remark: str = ""
    """What is to be said, as a warning, but is no trouble that lasts."""


class Course:
    """The way through lists and watches of one resource."""

    def __init__(self, resource: Resource, draw: Callable[[], float], times: Times | None = None) -> None:
        """Begin with a list; ``draw`` gives numbers from 0 to 1."""
        self.resource = resource
        self.times = times or Times()
        self._draw = draw
        self._version = 0
        self._missing = 0
        """How many versions of the API in a row do not have the resource."""
        self._streaming = True
        """Whether the server is believed to list as a stream."""
        self._field_selector = resource.field_selector
        self._at: str | None = None
        """The resource version that everything before is known of; None where the server has to say a new one."""
        self._listed = False
        """Whether to go on watching from there."""
        self._continue = ""
        self._whole = False
        """Whether to ask for a list without pages, because they have expired in the middle."""
        self._expiries = 0
        """How often in a row something expired soon after the time before."""
        self._expired_at = 0.0
        self._useless = 0
        """How many watches in a row ended at once, with nothing in them."""

    @property
    def path(self) -> str:
        """Where the API has the resource."""
        return self.resource.paths[self._version]

    @property
    def begins_list(self) -> bool:
        """Whether the next answer is the beginning of a list."""
        return not self._listed and not self._continue

    def ask(self) -> Ask:
        """Return the next request."""
        times = self.times
        seconds = times.shortest_watch + (times.longest_watch - times.shortest_watch) * self._draw()
        watching = [("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(int(seconds)))]
        at = [("resourceVersion", self._at)] if self._at is not None else []
        if self._listed:
            return self._asked(Form.WATCH, [*watching, *at], seconds + times.grace, seconds)
        if self._streaming:
            initial = [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
            return self._asked(Form.STREAM, [*watching, *initial, *at], times.listing, seconds)
        if self._continue:
            return self._asked(Form.PAGE, [("limit", str(PAGE)), ("continue", self._continue)], times.listing)
        match = [*at, ("resourceVersionMatch", "NotOlderThan")] if at else []
        pages = [] if self._whole else [("limit", str(PAGE))]
        return self._asked(Form.PAGE, [*pages, *match], times.listing)

    def _asked(self, form: Form, query: list[tuple[str, str]], quiet: float, seconds: float = 0.0) -> Ask:
        selectors = [("labelSelector", self.resource.label_selector), ("fieldSelector", self._field_selector)]
        return Ask(form, self.path, (*((name, value) for name, value in selectors if value), *query), quiet, seconds)

    def answered(self) -> None:
        """Note that the server has begun to answer."""
        self._missing = 0

    def page(self, version: str, continues: str) -> bool:
        """Note a page; return whether it was the last."""
        self._continue = continues
        if continues:
            return False
        self._whole = False
        self.listed(version)
        return True

    def listed(self, version: str) -> None:
        """Note that everything has been listed, as it was at a resource version."""
        self._listed, self._at = True, version or None
        self._whole = False

    def advanced(self, version: str) -> None:
        """Note that everything up to a resource version is known."""
        if self._listed and version:
            self._at = version

    def ended(self, ask: Ask, lasted: float, *, empty: bool = False) -> Verdict:
        """Decide what follows on a stream that the server has ended properly after so many seconds.

        ``empty`` is one in which nothing has come.
        """
        if ask.form is Form.STREAM and not self._listed:
            return self.no_stream_of_lists(lasted)
        self._useless = self._useless + 1 if empty and lasted < self.times.brief else 0
        if lasted < self.times.brief:
            again = self._useless >= _SAID_AT
            return Verdict(Next.BACK_OFF, "its watches end as soon as they have begun" if again else "")
        # A server that goes down ends everybody's; one that ends this one as it was told to, only this.
        if lasted >= ask.seconds - 1:
            return Verdict(Next.NOW, anew=True)
        return Verdict(Next.AFTER, seconds=1.0, anew=True)

    def no_stream_of_lists(self, lasted: float) -> Verdict:
        """Go on with pages: the server knows streams, and not that they can be lists."""
        self._streaming = False
        return Verdict(Next.NOW) if lasted < self.times.listing else Verdict(Next.AFTER, seconds=1.0)

    def failed(
        self,
        ask: Ask,
        error: ClusterError,
        *,
        lasted: float | None = None,
        hung_listing: bool = False,
        now: float = 0.0,
    ) -> Verdict:
        """Decide what follows on a failure, known ``now``.

        ``lasted`` is for how many seconds the server had been answering, None where it had not begun to.
        """
        if isinstance(error, RefusedError) and _has_expired(error):
            return self._expired(error, now)
        if ask.form is Form.STREAM and hung_listing:
            return self.no_stream_of_lists(0.0)
        verdict = Verdict(Next.BACK_OFF, str(error))
        if isinstance(error, RefusedError):
            verdict = self._refused(ask, error)._replace(kind=str(error.status))
        lived = self._listed and ask.form is not Form.PAGE and lasted is not None and lasted >= self.times.brief
        if lived and verdict.next is Next.BACK_OFF:
            return verdict._replace(next=Next.AFTER, seconds=1.0, anew=True)
        return verdict

    def _refused(self, ask: Ask, error: RefusedError) -> Verdict:
        match error.status:
            case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
                return self._not_understood(ask, error)
            case HTTPStatus.NOT_FOUND:
                return self._not_found(error)
            case HTTPStatus.FORBIDDEN:
                verb = "list" if ask.form is Form.PAGE else "watch"
                wrong = f"knft may not {verb} {self.resource.name}: {error.said}; grant it (deploy/rbac.yaml)"
                return Verdict(Next.BACK_OFF, wrong, shared=False)
            case _ if error.retry_after:
                return Verdict(Next.RETRY_AFTER, str(error), error.retry_after)
            case _:
                return Verdict(Next.BACK_OFF, str(error))

    def _expired(self, error: RefusedError, now: float) -> Verdict:
        """List again: what came after the resource version is not known any more, or it lies ahead of the server."""
        again = self._at is None and not self._continue
        if self._continue:
            self._whole = True
        self._listed, self._at, self._continue = False, None, ""
        soon = self._expiries > 0 and now - self._expired_at < self.times.expired
        self._expiries, self._expired_at = (self._expiries + 1 if soon else 1), now
        if again:
            return Verdict(Next.BACK_OFF, str(error), kind=str(error.status))
        if not soon:
            return Verdict(Next.AFTER, seconds=1.0)
        words = f"{self.resource.name} expire again and again ({error}); they are listed anew after longer pauses"
        return Verdict(Next.BACK_OFF, remark=words if self._expiries == _SAID_AT else "")

    def _not_understood(self, ask: Ask, error: RefusedError) -> Verdict:
        """Ask in an older way, where there is one."""
        said = error.said.lower()
        about_fields = "field label" in said or "field selector" in said or "fieldselector" in said
        about_streams = "sendinitialevents" in said or "resourceversionmatch" in said
        if ask.form is Form.STREAM and (about_streams or not about_fields):
            self._streaming = False
            return Verdict(Next.NOW)
        if self._field_selector and self.resource.label_selector and not about_streams:
            self._field_selector = ""
            self._listed, self._continue = False, ""
            return Verdict(Next.NOW)
        if self._listed or self._continue or self._at is not None:
            self._listed, self._at, self._continue = False, None, ""
        return Verdict(Next.BACK_OFF, str(error), shared=False)

    def _not_found(self, error: RefusedError) -> Verdict:
        """Look in the next version of the API; one that is in none of them is missing."""
        self._missing += 1
        self._version = (self._version + 1) % len(self.resource.paths)
        self._listed, self._at, self._continue = False, None, ""
        if self._missing < len(self.resource.paths):
            return Verdict(Next.NOW)
        if self.resource.optional:
            self._missing = 0
            return Verdict(Next.AFTER, seconds=self.times.missing, shared=False)
        wrong = f"{self.resource.name} are not there: {error}; is it an API server?"
        return Verdict(Next.BACK_OFF, wrong, shared=False)


def pause(verdict: Verdict, backoff: Backoff, draw: Callable[[], float], now: float) -> float:
    """Return how many seconds to wait before the next request; ``draw`` gives numbers from 0 to 1."""
    if verdict.anew:
        backoff.begin_anew()
    match verdict.next:
        case Next.NOW:
            return 0.0
        case Next.AFTER:
            return jittered(verdict.seconds, draw)
        case Next.BACK_OFF:
            return backoff.pause(now)
        case Next.RETRY_AFTER:
            asked = verdict.seconds + max(1.0, verdict.seconds * _JITTER) * draw()
            return max(asked, backoff.pause(now))


def jittered(seconds: float, draw: Callable[[], float]) -> float:
    """Return a pause a little longer than ``seconds``; a short one is spread as a whole."""
    return seconds * draw() if seconds <= 1 else seconds * (1 + _JITTER * draw())


def _has_expired(error: RefusedError) -> bool:
    if error.status == HTTPStatus.GONE or error.reason in ("Expired", "Gone"):
        return True
    # After etcd was put back to an older state, the server has not come so far.
    return (
        error.status == HTTPStatus.GATEWAY_TIMEOUT
        and "resource version" in error.said.lower()
        and "large" in error.said.lower()
    )
