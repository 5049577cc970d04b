"""WatchProblems: the current problems of lists and watches, and when they are logged.

A problem is logged when it begins, when its kind changes, as a reminder while it lasts, and when it ends.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from msgspec import structs

from knft.apiserver.list_watch import RetryDecision
from knft.control.messages import ServerOutage

log = logging.getLogger("knft")

REPEAT_SECONDS = 60.0
"""A kind of problem that was logged is not logged again within this time."""
REMINDER_SECONDS = 300.0
"""A problem that lasts is logged again after this time, so that the end of the log shows why knft waits."""
MAX_OUTAGES = 50
"""How many outages that have ended are kept for ``knft history``."""
MAX_PROBLEM_LENGTH = 500
_MAX_KINDS = 100


class WatchProblems:
    """The problems of each resource; safe to use from any thread.

    A problem of the server as a whole affects every resource, and is logged once.
    """

    def __init__(self, now: Callable[[], float], wall_clock: Callable[[], float] = time.time) -> None:
        """Start without problems; ``now`` returns seconds, and ``wall_clock`` seconds since 1970."""
        self._now = now
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._problems: dict[str, RetryDecision] = {}
        self._problem_since: dict[str, float] = {}
        self._watched: set[str] = set()
        """The resources whose last request succeeded."""
        self._server_problem_since: float | None = None
        self._last_kind: dict[str, str] = {}
        """The kind of problem that was logged last for each resource, and for the server as a whole ("")."""
        self._logged_at: dict[tuple[str, str], float] = {}
        """When each kind of problem of a resource was logged."""
        self._lasting_outages: dict[str, ServerOutage] = {}
        self._past_outages: deque[ServerOutage] = deque(maxlen=MAX_OUTAGES)

    def problem(self, resource: str) -> str:
        """Return the problem of a resource, "" if there is none."""
        with self._lock:
            return self._problems[resource].problem if resource in self._problems else ""

    def problem_seconds(self) -> dict[str, float]:
        """Return for how many seconds each resource that has a problem has had one."""
        with self._lock:
            return {resource: self._now() - since for resource, since in self._problem_since.items()}

    def outages(self) -> tuple[ServerOutage, ...]:
        """Return the last outages; those that last are the last ones."""
        with self._lock:
            return (*self._past_outages, *self._lasting_outages.values())

    def set_problem(self, resource: str, decision: RetryDecision) -> None:
        """Record and log the problem of a resource."""
        with self._lock:
            self._problems[resource] = decision
            self._problem_since.setdefault(resource, self._now())
            self._watched.discard(resource)
            self._record_outage(resource, decision)
            if not decision.affects_server:
                log.log(self._log_level(resource, decision), "%s; retrying", decision.problem)
            elif self._server_problem_since is None:
                self._server_problem_since = self._now()
                self._log_level("", decision)
                log.warning("cannot watch the API server: %s; rules stay as they are", decision.problem)
            else:
                seconds = self._now() - self._server_problem_since
                text = "still cannot watch the API server after %.0f s: %s"
                log.log(self._log_level("", decision), text, seconds, decision.problem)
            self._log_recovery()

    def clear_problem(self, resource: str) -> None:
        """Record and log that a resource is watched again."""
        with self._lock:
            before = self._problems.pop(resource, None)
            self._problem_since.pop(resource, None)
            self._watched.add(resource)
            self._end_outage(resource)
            if before is not None and not before.affects_server:
                log.info("watching %s again", resource)
                self._last_kind.pop(resource, None)
            self._log_recovery()

    def _log_level(self, resource: str, decision: RetryDecision) -> int:
        """Return the level for a problem: debug if the same kind was logged recently, warning otherwise."""
        kind, now = decision.problem_kind or decision.problem, self._now()
        interval = REMINDER_SECONDS if self._last_kind.get(resource) == kind else REPEAT_SECONDS
        if now - self._logged_at.get((resource, kind), float("-inf")) < interval:
            return logging.DEBUG
        if len(self._logged_at) >= _MAX_KINDS:
            self._logged_at = {key: at for key, at in self._logged_at.items() if now - at < REPEAT_SECONDS}
            if len(self._logged_at) >= _MAX_KINDS:
                return logging.DEBUG
        self._last_kind[resource], self._logged_at[resource, kind] = kind, now
        return logging.WARNING

    def _log_recovery(self) -> None:
        """Log the end of a problem of the server as a whole; not while every watch fails for reasons of its own."""
        since = self._server_problem_since
        if since is None or not self._watched:
            return
        if not any(decision.affects_server for decision in self._problems.values()):
            log.info("watching the API server again after %.0f s", self._now() - since)
            self._server_problem_since = None
            self._end_outage("")
            self._last_kind.pop("", None)

    def _record_outage(self, resource: str, decision: RetryDecision) -> None:
        if decision.affects_server:
            self._end_outage(resource)
        name = "" if decision.affects_server else resource
        if name not in self._lasting_outages:
            self._lasting_outages[name] = ServerOutage(name, decision.problem[:MAX_PROBLEM_LENGTH], self._wall_clock())

    def _end_outage(self, resource: str) -> None:
        outage = self._lasting_outages.pop(resource, None)
        if outage is not None:
            self._past_outages.append(structs.replace(outage, ended=self._wall_clock()))
