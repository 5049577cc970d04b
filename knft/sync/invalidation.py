"""Invalidations: reasons to assume that the kernel no longer holds what was committed.

Any thread may add one. The next sync takes all of them, reads the table back, and sends what differs.
"""

import threading
from functools import reduce

from msgspec import Struct


class Invalidation(Struct, frozen=True):
    """What may have changed: elements and rules, and with ``declarations`` also the declarations of sets and maps."""

    declarations: bool = False

    def merged_with(self, other: "Invalidation") -> "Invalidation":
        """Return an invalidation of everything that either of them names."""
        return Invalidation(self.declarations or other.declarations)


class PendingInvalidations:
    """The invalidations since the last full sync."""

    def __init__(self) -> None:
        """Start without any."""
        self._lock = threading.Lock()
        self._pending: list[Invalidation] = []

    def add(self, invalidation: Invalidation) -> None:
        """Make the next sync a full one."""
        with self._lock:
            self._pending.append(invalidation)

    def take_all(self) -> Invalidation:
        """Return all pending invalidations as one, and remove them."""
        with self._lock:
            taken, self._pending = self._pending, []
        return reduce(Invalidation.merged_with, taken, Invalidation())

    def __bool__(self) -> bool:
        """Whether any is pending."""
        return bool(self._pending)
