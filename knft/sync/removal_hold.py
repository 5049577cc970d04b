"""RemovalHold: while not all objects are known, a sync removes nothing that it finds in the kernel."""

from knft.errors import UnavailableError
from knft.model.node import NodeView


class RemovalHold:
    """Whether removals are held; ``begin`` and ``end`` may be called by any thread, the rest by the sync thread."""

    def __init__(self) -> None:
        """Start without a hold."""
        self.is_requested = False
        """Whether the next sync removes nothing."""
        self._first_node: NodeView | None = None
        self._is_table_known = False
        self.is_active = False
        """Whether this sync removes nothing; it does not change during a sync."""
        self.was_released = False
        """Whether this sync is the first after those that removed nothing."""

    def begin(self) -> None:
        """Hold removals from the next sync on."""
        self.is_requested = True

    def end(self) -> None:
        """Hold removals no longer, from the next sync on."""
        self.is_requested = False

    def start_sync(self) -> None:
        """Fix ``is_active`` and ``was_released`` for one sync, before it takes the changed objects.

        If removals are released during the sync, objects that were passed just before may not be part of it.
        """
        was_active, self.is_active = self.is_active, self.is_requested
        self.was_released = was_active and not self.is_active

    def keeps_node(self, node: NodeView) -> bool:
        """Tell whether the node's contents stay as they were found: until the node changes."""
        if self._first_node is None:
            self._first_node = node
        return node == self._first_node

    def record_commit(self) -> None:
        """Record that the table is of this layout: if it must be replaced later, another program has damaged it."""
        self._is_table_known = True

    def check_replacement(self) -> None:
        """Raise UnavailableError if replacing the table would remove contents that are to stay."""
        if self.is_active and not self._is_table_known:
            msg = (
                "another version of knft created the table, and replacing it would remove rules of Services whose "
                "manifests cannot be read; the table stays as it is until every manifest was read without error"
            )
            raise UnavailableError(msg)
