"""Troubles: what is wrong between knft and the API server now.

It is said when it begins, when it becomes something else, now and then while it lasts, and once when it is over.
"""

import logging
import threading
from collections.abc import Callable

from knft.apiserver.course import Verdict

log = logging.getLogger("knft")

AGAIN_SECONDS = 60.0
"""How long after a trouble was said one of the same kind is not."""
REMIND_SECONDS = 300.0
"""How often a trouble that lasts is said again: who looks into the log of a proxy that waits has to find what for."""
_MAX_KINDS = 100


class Troubles:
    """What is wrong with each resource; from any thread.

    Where the server as a whole is in trouble, every resource is, and one line says so.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """Start with nothing wrong; ``now`` gives seconds."""
        self._now = now
        self._lock = threading.Lock()
        self._wrong: dict[str, Verdict] = {}
        self._since: float | None = None
        """When the server as a whole came into trouble."""
        self._last: dict[str, str] = {}
        """The kind that was said last, of a resource, or of the server as a whole ("")."""
        self._said: dict[tuple[str, str], float] = {}
        """When each kind was said."""

    def of(self, name: str) -> str:
        """Return what is wrong with a resource, "" where nothing is."""
        with self._lock:
            return self._wrong[name].wrong if name in self._wrong else ""

    def begin(self, name: str, verdict: Verdict) -> None:
        """Note what is wrong with a resource."""
        with self._lock:
            self._wrong[name] = verdict
            if not verdict.shared:
                log.log(self._level(name, verdict), "%s; it is tried again", verdict.wrong)
            elif self._since is None:
                self._since = self._now()
                self._level("", verdict)
                log.warning("the API server cannot be followed: %s; rules stay as they are", verdict.wrong)
            else:
                words = "the API server is still not followed, after %.0f s: %s"
                log.log(self._level("", verdict), words, self._now() - self._since, verdict.wrong)
            self._look_whether_over()

    def end(self, name: str) -> None:
        """Note that a resource is followed again."""
        with self._lock:
            before = self._wrong.pop(name, None)
            if before is not None and not before.shared:
                log.info("%s are followed again", name)
                self._last.pop(name, None)
            self._look_whether_over()

    def _level(self, of: str, verdict: Verdict) -> int:
        """Return how loud to say what is wrong: not what was said a short while ago, and rarely what was said last."""
        kind, now = verdict.kind or verdict.wrong, self._now()
        silent = REMIND_SECONDS if self._last.get(of) == kind else AGAIN_SECONDS
        if now - self._said.get((of, kind), float("-inf")) < silent:
            return logging.DEBUG
        if len(self._said) >= _MAX_KINDS:
            self._said = {key: when for key, when in self._said.items() if now - when < AGAIN_SECONDS}
            if len(self._said) >= _MAX_KINDS:
                return logging.DEBUG
        self._last[of], self._said[of, kind] = kind, now
        return logging.WARNING

    def _look_whether_over(self) -> None:
        if self._since is not None and not any(verdict.shared for verdict in self._wrong.values()):
            log.info("the API server is followed again, after %.0f s", self._now() - self._since)
            self._since = None
            self._last.pop("", None)
