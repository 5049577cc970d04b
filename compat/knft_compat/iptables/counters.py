"""The counters of nfacct that rules name."""

import shlex
from collections.abc import Iterator

from msgspec import Struct


class EnsureCounters(Struct, frozen=True, tag="nfacct"):
    """Counters to be made where they are missing; they keep what they have counted."""

    counters: tuple[str, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield a command for each, which looks for the counter first."""
        for counter in self.counters:
            name = shlex.quote(counter)
            yield f"nfacct get {name} >/dev/null 2>&1 || nfacct add {name}"
