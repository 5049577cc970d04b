"""Tables with the flags ``owner`` and ``persist``: only their owner may change them, and they outlive it.

This requires libnftables 1.1.0 and Linux 6.9. Another program's ``nft flush ruleset`` skips such tables, and its
changes fail with EPERM. The owner is a netlink socket, so a new worker process must claim the tables of its
predecessor. Between the two, for a moment after a large transaction or a crash, any program can change the tables, and
a second knft can claim them.
"""

from collections.abc import Sequence

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.process import WorkerProcess
from knft.kernel.table_flags import flags_of

_PROBE = "table ip knft-probe {\nflags owner,persist\n}\ndelete table ip knft-probe\n"


class Ownership:
    """Keeps the tables of ``families`` owned by the current worker process of ``library``."""

    def __init__(self, library: WorkerProcess, name: str, families: Sequence[Family]) -> None:
        """Probe whether libnftables and the kernel support owned tables; raise UnsupportedError without libnftables."""
        self._library = library
        self._name = name
        self._families = families
        self._claimed_by = 0
        self.is_supported = self._probe()

    def _probe(self) -> bool:
        try:
            self._library.run(_PROBE)
        except KernelError:
            return False
        return True

    def claim(self) -> None:
        """Claim tables that a previous worker process owned; raise KernelError if the kernel refuses."""
        if not self.is_supported or self._claimed_by == self._library.start_count:
            return
        unowned = [family for family in self._families if flags_of(family.nft, self._name) == {"persist"}]
        for family in unowned:
            self._library.run(f"table {family.nft} {self._name} {{\nflags owner,persist\n}}\n")
        self._claimed_by = self._library.start_count
