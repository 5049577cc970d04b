"""Tables that only their maker may change, and that outlive it (libnftables 1.1.0, Linux 6.9).

Another program's ``nft flush ruleset`` leaves them alone, and everybody else's changes get EPERM. The owner is a
netlink socket, so a new process of the library has to take over what the last one left. In between, which is a moment
after a large transaction and after a crash, anybody may change the table, and a second knft may take it over.
"""

from collections.abc import Sequence

from knft.errors import KernelError
from knft.kernel.process import LibraryProcess
from knft.kernel.tables import flags_of
from knft.nft.objects import Family

_PROBE = "table ip knft-probe {\nflags owner,persist\n}\ndelete table ip knft-probe\n"


class Ownership:
    """Keeps the tables of ``families`` owned by the library's present process."""

    def __init__(self, library: LibraryProcess, name: str, families: Sequence[Family]) -> None:
        """Ask whether library and kernel can do it; raise UnsupportedError where there is none."""
        self._library = library
        self._name = name
        self._families = families
        self._claimed = 0
        self.possible = self._can_be_owned()

    def _can_be_owned(self) -> bool:
        try:
            self._library.run(_PROBE)
        except KernelError:
            return False
        return True

    def keep(self) -> None:
        """Take over what a former process of the library left; raise KernelError where that is refused."""
        if not self.possible or self._claimed == self._library.started:
            return
        left = [family for family in self._families if flags_of(family, self._name) == {"persist"}]
        for family in left:
            self._library.run(f"table {family} {self._name} {{\nflags owner,persist\n}}\n")
        self._claimed = self._library.started
