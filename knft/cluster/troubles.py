"""Troubles: what is wrong between knft and the API server now, said once when it begins and once when it is over."""

import logging
import threading
from collections.abc import Callable

from knft.cluster.course import Verdict

log = logging.getLogger("knft")


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

    def of(self, name: str) -> str:
        """Return what is wrong with a resource, "" where nothing is."""
        with self._lock:
            return self._wrong[name].wrong if name in self._wrong else ""

    def begin(self, name: str, verdict: Verdict) -> None:
        """Note what is wrong with a resource."""
        with self._lock:
            before = self._wrong.get(name)
            self._wrong[name] = verdict
            if verdict.shared:
                level = logging.WARNING if self._since is None else logging.DEBUG
                self._since = self._now() if self._since is None else self._since
                log.log(level, "the API server cannot be followed: %s; rules stay as they are", verdict.wrong)
            elif before is None or before.wrong != verdict.wrong:
                log.warning("%s; it is tried again", verdict.wrong)
            self._look_whether_over()

    def end(self, name: str) -> None:
        """Note that a resource is followed again."""
        with self._lock:
            before = self._wrong.pop(name, None)
            if before is not None and not before.shared:
                log.info("%s are followed again", name)
            self._look_whether_over()

    def _look_whether_over(self) -> None:
        if self._since is not None and not any(verdict.shared for verdict in self._wrong.values()):
            log.info("the API server is followed again, after %.0f s", self._now() - self._since)
            self._since = None
