"""Creates the nfacct counters that rules use."""

import shlex
from collections.abc import Iterator

from msgspec import Struct


class EnsureCounters(Struct, frozen=True, tag="nfacct"):
    """Creates counters that are missing; existing ones keep their values."""

    counters: tuple[str, ...]
    tool = ("sh",)
    programs = ("nfacct",)

    def text(self) -> Iterator[str]:
        """Yield one command for each counter, which creates it unless it exists."""
        for counter in self.counters:
            name = shlex.quote(counter)
            yield f"nfacct get {name} >/dev/null 2>&1 || nfacct add {name}"
