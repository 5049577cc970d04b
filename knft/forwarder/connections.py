"""Forwards TCP connections: one listener for each NodePort, and both directions of each connection."""

import asyncio
import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable

from knft.families import family_of
from knft.forwarder.endpoint_choice import EndpointChoice, Target

DIAL_SECONDS = 5.0
"""How long an endpoint may take to accept a connection, as in kube-proxy."""
DISCARD_SECONDS = 5.0
"""How long after the answer a client has to end its direction, if the endpoint reads no more, before it is reset."""
MAX_CONNECTIONS = 4096
_RESERVED_FILES = 64
_BUFFER_BYTES = 1 << 16
_BACKLOG = 128
_ACCEPT_PAUSE_SECONDS = 1.0
"""How long no connection is accepted after the kernel had no file or memory for one."""
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 9))
"""As Go sets them in kube-proxy: notices an endpoint whose node is gone."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ConnectionLimit:
    """Counts the connections of all listeners, and those that were refused because there were too many."""

    def __init__(self, count_listeners: Callable[[], int]) -> None:
        """Each listener takes an open file, too."""
        self._count_listeners = count_listeners
        self.connections = self.refused = 0

    def admit(self) -> bool:
        """Count a connection; return whether it may be served."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # A connection takes two open files.
        free = (files - _RESERVED_FILES - self._count_listeners()) // 2
        if self.connections >= MAX_CONNECTIONS or (files != resource.RLIM_INFINITY and self.connections >= free):
            self.refused += 1
            return False
        self.connections += 1
        return True

    def release(self) -> None:
        """Count the end of a connection."""
        self.connections -= 1


class PortListener:
    """Listens at one address and port, and forwards each connection to one of the endpoints."""

    def __init__(self, address: str, port: int, choice: EndpointChoice, limit: ConnectionLimit) -> None:
        """Listen, and accept connections in a task of the running loop; raise OSError if the port is unavailable."""
        self.choice, self._limit = choice, limit
        self._socket = _listening_socket(address, port)
        self._connections = set[asyncio.Task[None]]()
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Release the port. Established connections stay until they end, as those of the rules do."""
        self._accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._accepting
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await _let_others_run()
            try:
                client, _ = await loop.sock_accept(self._socket)
            except OSError:
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if not self._limit.admit():
                _reset(client)
                continue
            task = asyncio.create_task(self._serve(client))
            # The loop itself keeps no reference.
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, client: socket.socket) -> None:
        try:
            await _forward(client, self.choice.choose(time.monotonic()))
        finally:
            self._limit.release()


def _listening_socket(address: str, port: int) -> socket.socket:
    listening = socket.socket(family_of(address).number, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # Connections that a former process has left in TIME_WAIT must not block the port.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def _forward(client: socket.socket, target: Target) -> None:
    """Forward a connection until both sides have ended it; a side that fails resets the other one."""
    with client:
        try:
            _send_at_once(client)
            endpoint = socket.socket(family_of(target[0]).number, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            with endpoint:
                await _dial(endpoint, target)
                try:
                    await _exchange(client, endpoint)
                except BaseException:
                    _reset(endpoint)
                    raise
        except* OSError:
            _reset(client)


async def _let_others_run() -> None:
    """Return after other tasks had their turn: methods of the loop return at once if nothing has to be waited for."""
    await asyncio.sleep(0)


async def _dial(endpoint: socket.socket, target: Target) -> None:
    _send_at_once(endpoint)
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        endpoint.setsockopt(socket.IPPROTO_TCP, option, value)
    async with asyncio.timeout(DIAL_SECONDS):
        await asyncio.get_running_loop().sock_connect(endpoint, target)


def _send_at_once(connection: socket.socket) -> None:
    """Turn off Nagle's algorithm, as Go does: it would delay small messages until the previous one is acknowledged."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _exchange(client: socket.socket, endpoint: socket.socket) -> None:
    """Copy both directions until both have ended; raise OSError if a side failed."""
    async with asyncio.TaskGroup() as directions:
        answer = directions.create_task(_copy(endpoint, client))
        directions.create_task(_copy_requests(client, endpoint, answer, directions))


async def _copy_requests(
    client: socket.socket, endpoint: socket.socket, answer: "asyncio.Task[None]", directions: asyncio.TaskGroup
) -> None:
    """Copy from the client to the endpoint; if that reads no more, let its answer arrive.

    Then discard what the client still sends: closing with unread data would reset the connection.
    """
    try:
        await _copy(client, endpoint)
    except BrokenPipeError:
        # Unlike a reset, the kernel reports this if the endpoint had ended its direction: the answer is complete.
        discarding = directions.create_task(_discard(client))
        await asyncio.wait([answer])
        _, unfinished = await asyncio.wait([discarding], timeout=DISCARD_SECONDS)
        if unfinished:
            msg = "the client still sends"
            raise TimeoutError(msg) from None


async def _copy(source: socket.socket, destination: socket.socket) -> None:
    """Copy one direction until its end, and pass that on: the other direction may continue."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _BUFFER_BYTES):
        await loop.sock_sendall(destination, data)
        await _let_others_run()
    destination.shutdown(socket.SHUT_WR)


async def _discard(client: socket.socket) -> None:
    """Read what a client sends until it ends its direction."""
    loop = asyncio.get_running_loop()
    while await loop.sock_recv(client, _BUFFER_BYTES):
        await _let_others_run()


def _reset(connection: socket.socket) -> None:
    """End a connection with a reset."""
    with contextlib.suppress(OSError):  # It may have ended already.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    connection.close()


def error_reason(error: OSError) -> str:
    """Return why a port could not be opened."""
    return os.strerror(error.errno) if error.errno else str(error)
