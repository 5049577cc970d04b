"""The pools of a Service over time.

A pool may be loaded from the time its commit begins until the commit of the next pool has returned.
"""

import math
from bisect import bisect_left
from itertools import islice, takewhile
from typing import NamedTuple

from tests.support.packets.churn import Backend, Pool


class Period(NamedTuple):
    """A pool, and the times between which it may be loaded."""

    started: float
    ended: float
    pool: frozenset[Backend]


class Timeline:
    """The pools of one Service, recorded in the order of time."""

    def __init__(self) -> None:
        """Start without a pool."""
        self._periods: list[Period] = []

    def record(self, started: float, pool: Pool, returned: float) -> None:
        """Record a commit of ``pool``: when it began, and when it had returned."""
        if self._periods:
            self._periods[-1] = self._periods[-1]._replace(ended=returned)
        self._periods.append(Period(started, math.inf, frozenset(pool)))

    def during(self, started: float, ended: float) -> list[frozenset[Backend]]:
        """Return every pool that may have been loaded at some time between the two."""
        first = bisect_left(self._periods, started, key=lambda period: period.ended)
        return [
            period.pool
            for period in takewhile(lambda period: period.started <= ended, islice(self._periods, first, None))
        ]
