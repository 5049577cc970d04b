"""DueFamilies: which families a run of the sync loop syncs, since most changes concern only one."""

import math
import threading
from collections.abc import Collection, Iterable

from knft.families import Family


class DueFamilies:
    """The families to sync next; any thread may call ``request``.

    A family is due after a request, while it is unsettled (its last sync failed, or left something to a later one), and
    if its last sync is too long ago. If none is due, all are: the loop runs because a time has passed.
    """

    def __init__(self, families: Collection[Family], longest_seconds: float) -> None:
        """Start with all families due; each is due again ``longest_seconds`` after its last sync."""
        self._families = frozenset(families)
        self._longest_seconds = longest_seconds
        self._lock = threading.Lock()
        self._requested: set[Family] = set()
        self._unsettled: set[Family] = set()
        self._synced_at = dict.fromkeys(families, -math.inf)

    def request(self, families: Iterable[Family]) -> None:
        """Make families due."""
        with self._lock:
            self._requested.update(families)

    def take(self, now: float) -> frozenset[Family]:
        """Return the due families, which are synced now; later requests are for the next time."""
        with self._lock:
            requested, self._requested = self._requested, set()
        late = {family for family, at in self._synced_at.items() if now - at >= self._longest_seconds}
        return frozenset(requested | self._unsettled | late) or self._families

    def record_sync(self, family: Family, now: float, *, is_settled: bool) -> None:
        """Record the end of a sync."""
        self._synced_at[family] = now
        (self._unsettled.discard if is_settled else self._unsettled.add)(family)
