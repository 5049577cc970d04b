"""ConnectionPool: limits the connections of all HTTP servers, and the memory of requests and responses in transit.

Below the limits, no connection is closed before its timeout. At a limit, the client that uses the most loses its oldest
connection. Clients that connect fast or keep connections open therefore do not block health checks of other clients,
not even slow ones.
"""

from typing import Protocol

Client = tuple[str, str]
"""The name of a server, and the address of a client of it."""

MAX_HELD_BYTES = 32 << 20
"""The maximum size of incomplete requests and unsent responses together; normally there are none."""


class OpenConnection(Protocol):
    """What the pool needs of a connection."""

    client: Client
    held_bytes: int
    """The size of its incomplete request or unsent response; only the pool changes it."""

    def abort(self) -> None:
        """Close the connection immediately."""


class ConnectionPool:
    """The open connections of all servers of the process."""

    def __init__(self, limit: int) -> None:
        """Allow ``limit`` connections at a time."""
        self.limit = limit
        self._connections: dict[Client, dict[OpenConnection, None]] = {}
        self._count = 0
        self._clients_by_count: dict[int, dict[Client, None]] = {}
        """Clients by their number of connections: finding the one with the most takes the same time for any number."""
        self._highest_count = 0
        self._held_bytes: dict[Client, int] = {}
        self._all_held_bytes = 0

    def add(self, connection: OpenConnection) -> None:
        """Add an open connection."""
        if self._count >= self.limit:
            client = next(iter(self._clients_by_count[self._highest_count]))
            self._evict(next(iter(self._connections[client])))
        connections = self._connections.setdefault(connection.client, {})
        connections[connection] = None
        self._count += 1
        self._change_count(connection.client, len(connections) - 1, len(connections))

    def remove(self, connection: OpenConnection) -> None:
        """Remove a connection that is closed; do nothing if it is removed already."""
        connections = self._connections.get(connection.client, {})
        if connection not in connections:
            return
        self._set_held_bytes(connection, 0)
        del connections[connection]
        if not connections:
            del self._connections[connection.client]
        self._count -= 1
        self._change_count(connection.client, len(connections) + 1, len(connections))

    def _change_count(self, client: Client, old: int, new: int) -> None:
        if old:
            del self._clients_by_count[old][client]
            if not self._clients_by_count[old]:
                del self._clients_by_count[old]
        if new:
            self._clients_by_count.setdefault(new, {})[client] = None
        if new > self._highest_count or self._highest_count not in self._clients_by_count:
            self._highest_count = new

    def hold_bytes(self, connection: OpenConnection, number: int) -> None:
        """Record the size of what a connection holds; close connections while all together hold too much."""
        if connection not in self._connections.get(connection.client, {}):
            return
        self._set_held_bytes(connection, number)
        while self._all_held_bytes > MAX_HELD_BYTES:
            client = max(self._held_bytes, key=self._held_bytes.__getitem__)
            self._evict(next(connection for connection in self._connections[client] if connection.held_bytes))

    def _set_held_bytes(self, connection: OpenConnection, number: int) -> None:
        change, connection.held_bytes = number - connection.held_bytes, number
        self._all_held_bytes += change
        of_client = self._held_bytes.get(connection.client, 0) + change
        if of_client:
            self._held_bytes[connection.client] = of_client
        else:
            self._held_bytes.pop(connection.client, None)

    def limit_client(self, client: Client, number: int) -> None:
        """Close the oldest connections of a client until it has at most ``number``."""
        while len(connections := self._connections.get(client, {})) > number:
            self._evict(next(iter(connections)))

    def _evict(self, connection: OpenConnection) -> None:
        self.remove(connection)
        connection.abort()

    def abort_all(self) -> None:
        """Abort all connections."""
        for connections in list(self._connections.values()):
            for connection in list(connections):
                connection.abort()

    def __len__(self) -> int:
        """Count the open connections."""
        return self._count
