"""Declarations: declares knft's sets and maps, unless the kernel has accepted them before."""

from typing import Any

from knft.config import Config
from knft.families import Family
from knft.render import layout
from knft.sync.table_interface import TableInterface
from knft.sync.table_snapshot import TableSnapshot


class Declarations:
    """The sets and maps of one family's table, and how they were listed when the kernel last accepted them.

    Repeating the declarations changes nothing, but notifies other programs. Two knft processes would notify each other
    without end.
    """

    def __init__(self, family: Family, config: Config) -> None:
        """Start with declarations that the kernel has not accepted."""
        self._table = layout.declarations(family, config)
        self._accepted: dict[str, Any] = {}

    def are_in_force(self, snapshot: TableSnapshot, *, may_be_foreign: bool) -> bool:
        """Tell whether all sets and maps exist and, if they ``may_be_foreign``, are listed as when last accepted."""
        are_declared = all(container.name in snapshot.programmed.containers for container in self._table.containers)
        return are_declared and (not may_be_foreign or self._listed(snapshot) == self._accepted)

    def declare(self, table: TableInterface, snapshot: TableSnapshot) -> None:
        """Declare them; raise KernelError if one exists with another type."""
        table.declare(self._table)
        self._accepted = self._listed(snapshot)

    def _listed(self, snapshot: TableSnapshot) -> dict[str, Any]:
        """Return how knft's sets and maps were listed, by name, without the numbers that the kernel gives them."""
        own = {container.name for container in self._table.containers}
        listed = snapshot.listing.declarations.items() if snapshot.listing is not None else ()
        return {
            each.name: {field: value for field, value in fields.items() if field != "handle"}
            for each, fields in listed
            if each.name in own
        }
