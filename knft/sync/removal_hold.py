"""RemovalHold: while not all objects are known, a sync removes nothing that may belong to the unknown ones."""

from msgspec import structs

from knft.errors import UnavailableError
from knft.model.node import NodeView
from knft.model.unknown import NOTHING_UNKNOWN
from knft.nft.objects import Contents
from knft.sync.previous_contents import find_services
from knft.sync.state import ServiceState
from knft.sync.table_snapshot import TableSnapshot, TableState


class RemovalHold:
    """Which removals are held; any thread may set ``requested``, the rest is for the sync thread."""

    def __init__(self) -> None:
        """Start without a hold."""
        self.requested = NOTHING_UNKNOWN
        """The objects that are unknown in the next sync."""
        self._first_node: NodeView | None = None
        self._is_table_known = False
        self.unknown = NOTHING_UNKNOWN
        """The objects that are unknown in this sync; they do not change during a sync."""
        self.was_released = False
        """Whether this sync may remove contents that the previous sync had to keep."""
        self.found = Contents.empty()
        """The contents of unknown Services that the last full sync found; empty if anything may be unknown."""

    def start_sync(self) -> None:
        """Fix ``unknown`` and ``was_released`` for one sync, before it takes the changed objects.

        If removals are released during the sync, objects that were passed just before may not be part of it.
        """
        previous, self.unknown = self.unknown, self.requested
        self.was_released = bool(previous) and previous != self.unknown

    def applied_to(self, snapshot: TableSnapshot, state: ServiceState) -> TableSnapshot:
        """Return the snapshot for a full sync that removes nothing that may belong to unknown objects.

        Raises UnavailableError if it would have to replace the table.
        """
        unknown = self.unknown
        self.found = Contents.empty()
        if not unknown:
            return snapshot
        if snapshot.table is TableState.INCOMPATIBLE:
            self.check_replacement()
            return snapshot.for_replacement()
        if snapshot.listing is not None and not unknown.anything:
            self.found = find_services(unknown.includes_service, snapshot.listing.contents)
            last_known = Contents.merged((snapshot.last_known, self.found))
            snapshot = structs.replace(snapshot, last_known=last_known)
        return snapshot.with_removals_held(
            keeps_node=unknown.includes_node and self._keeps_node(state.node),
            keeps_all=unknown.anything,
        )

    def _keeps_node(self, node: NodeView) -> bool:
        """Tell whether the node's contents stay as they were found: until the node changes."""
        if self._first_node is None:
            self._first_node = node
        return node == self._first_node

    def record_commit(self) -> None:
        """Record that the table is of this layout: if it must be replaced later, another program has damaged it."""
        self._is_table_known = True

    def check_replacement(self) -> None:
        """Raise UnavailableError if replacing the table would remove contents that are to stay."""
        if self.unknown and not self._is_table_known:
            msg = (
                "another version of knft created the table, and replacing it would remove rules of Services whose "
                "manifests cannot be read; the table stays as it is until every manifest was read without error"
            )
            raise UnavailableError(msg)
