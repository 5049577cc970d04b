"""LastingProblems: logs each problem once when it begins, and once when it ends."""

import logging
from collections.abc import Iterable

from knft.sync.log_summary import summarize

log = logging.getLogger("knft")


class LastingProblems:
    """The problems that exist now, by topic, such as an IP family."""

    def __init__(self) -> None:
        """Start without problems."""
        self._current: dict[str, frozenset[str]] = {}

    def update(self, problems: Iterable[str], topic: str = "") -> None:
        """Log the problems that began and ended since the last call for this topic."""
        previous, current = self._current.get(topic, frozenset()), frozenset(problems)
        self._current[topic] = current
        prefix = f"{topic}: " if topic else ""
        for problem in sorted(current - previous):
            log.warning("%s%s", prefix, problem, stacklevel=2)
        log_ended(sorted(previous - current), prefix, stacklevel=2)


def log_ended(problems: Iterable[object], prefix: str = "", *, stacklevel: int = 1) -> None:
    """Log in one line that problems exist no longer, as a line of the caller, or of its callers."""
    ended = tuple(problems)
    if ended:
        log.info("%sno longer: %s", prefix, summarize(ended, "problems"), stacklevel=stacklevel + 1)
