"""WatchProblems: the current problems of lists and watches, and when they are logged.

A problem is logged when it begins, when its kind changes, as a reminder while it lasts, and when it ends.
"""

import logging
import threading
from collections.abc import Callable

from knft.apiserver.list_watch import RetryDecision

log = logging.getLogger("knft")

REPEAT_SECONDS = 60.0
"""A kind of problem that was logged is not logged again within this time."""
REMINDER_SECONDS = 300.0
"""A problem that lasts is logged again after this time, so that the end of the log shows why knft waits."""
_MAX_KINDS = 100


class WatchProblems:
    """The problems of each resource; safe to use from any thread.

    A problem of the server as a whole affects every resource, and is logged once.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """Start without problems; ``now`` returns seconds."""
        self._now = now
        self._lock = threading.Lock()
        self._problems: dict[str, RetryDecision] = {}
        self._since: dict[str, float] = {}
        """When the problem of each resource began."""
        self._watched: set[str] = set()
        """The resources whose last request succeeded."""
        self._server_problem_since: float | None = None
        self._last_kind: dict[str, str] = {}
        """The kind of problem that was logged last for each resource, and for the server as a whole ("")."""
        self._logged_at: dict[tuple[str, str], float] = {}
        """When each kind of problem of a resource was logged."""

    def problem(self, resource: str) -> str:
        """Return the problem of a resource, "" if there is none."""
        with self._lock:
            return self._problems[resource].problem if resource in self._problems else ""

    def longest(self) -> float | None:
        """Return for how many seconds the oldest problem has lasted, None without a problem."""
        with self._lock:
            return self._now() - min(self._since.values()) if self._since else None

    def set_problem(self, resource: str, decision: RetryDecision) -> None:
        """Record and log the problem of a resource."""
        with self._lock:
            self._problems[resource] = decision
            self._since.setdefault(resource, self._now())
            self._watched.discard(resource)
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
            self._since.pop(resource, None)
            self._watched.add(resource)
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
            self._last_kind.pop("", None)
