"""What gives reason to doubt that the kernel holds what was committed; told from any thread, heard at the next sync."""

import threading
from functools import reduce

from msgspec import Struct


class Doubt(Struct, frozen=True):
    """The rules of ``chains``, or of ``every_chain``, may be other ones; so may be the table's ``declarations``."""

    chains: frozenset[str] = frozenset()
    declarations: bool = False
    every_chain: bool = False

    def joined(self, other: "Doubt") -> "Doubt":
        """Return both."""
        return Doubt(
            self.chains | other.chains,
            self.declarations or other.declarations,
            self.every_chain or other.every_chain,
        )


class Doubts:
    """The doubts since the last comparison."""

    def __init__(self) -> None:
        """Start without any."""
        self._lock = threading.Lock()
        self._doubts: list[Doubt] = []

    def add(self, doubt: Doubt) -> None:
        """Have the next sync compare."""
        with self._lock:
            self._doubts.append(doubt)

    def take(self) -> Doubt:
        """Return all, joined, and start anew."""
        with self._lock:
            taken, self._doubts = self._doubts, []
        return reduce(Doubt.joined, taken, Doubt())

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._doubts)
