"""FailureLog: logs failed syncs when the reason is a new one, as a reminder while they fail, and when they succeed."""

import logging

from msgspec import Struct

from knft.errors import KernelError
from knft.families import Family

log = logging.getLogger("knft")

REMINDER_SECONDS = 300.0
"""A reason that lasts is logged again after this time, so that the end of the log shows why rules are not in force."""


class _Failure(Struct):
    """The failed syncs of a family: since when, and the reason that was logged last, and when; times in seconds."""

    since: float
    reason: str
    logged_at: float


class FailureLog:
    """The families whose last sync failed."""

    def __init__(self) -> None:
        """Start without failures."""
        self._failures: dict[Family, _Failure] = {}

    def failed(self, family: Family, error: KernelError, now: float) -> None:
        """Log a failed sync; for debugging only, if the reason was logged less than ``REMINDER_SECONDS`` ago."""
        reason, failure = str(error), self._failures.get(family)
        if failure is None or failure.reason != reason:
            log.error("%s: sync failed: %s", family.value, reason)
            since = failure.since if failure is not None else now
            self._failures[family] = _Failure(since, reason, now)
        elif now - failure.logged_at >= REMINDER_SECONDS:
            failure.logged_at = now
            log.error("%s: syncs still fail after %.0f s: %s", family.value, now - failure.since, reason)
        else:
            log.debug("%s: sync failed: %s", family.value, reason)
        log.debug("%s", error.detail)

    def succeeded(self, family: Family, now: float) -> None:
        """Log the end of failures, if the last sync failed."""
        failure = self._failures.pop(family, None)
        if failure is not None:
            log.info("%s: syncs succeed again after %.0f s", family.value, now - failure.since)
