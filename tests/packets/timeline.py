"""Which pools a Service had when. Values only.

A pool may be in force from the moment at which its commit began until the commit of the next one has returned.
"""

import math
from bisect import bisect_left
from itertools import islice, takewhile
from typing import NamedTuple

from tests.packets.churn import Backend, Pool


class Era(NamedTuple):
    """A pool, and the times between which it may be in force."""

    begun: float
    ended: float
    pool: frozenset[Backend]


class Timeline:
    """The pools of one Service, noted in the order of time."""

    def __init__(self) -> None:
        """Begin with none."""
        self._eras: list[Era] = []

    def note(self, begun: float, pool: Pool, returned: float) -> None:
        """Note a commit: when it was begun, what it was of, and when it had returned."""
        if self._eras:
            self._eras[-1] = self._eras[-1]._replace(ended=returned)
        self._eras.append(Era(begun, math.inf, frozenset(pool)))

    def during(self, begun: float, ended: float) -> list[frozenset[Backend]]:
        """Return every pool that may have been in force at some time between the two."""
        first = bisect_left(self._eras, begun, key=lambda era: era.ended)
        return [era.pool for era in takewhile(lambda era: era.begun <= ended, islice(self._eras, first, None))]
