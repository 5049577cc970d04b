"""The thread that runs all HTTP servers of the process, however many ports they listen on."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from knft.memory_errors import exit_if_out_of_memory
from knft.serve.connection import Connection, Handler
from knft.serve.connection_pool import ConnectionPool
from knft.serve.sockets import raise_file_limit
from knft.serve.timestamp import Clock

log = logging.getLogger("knft")

ACCEPT_PAUSE_SECONDS = 1.0
"""How long a listener stops accepting connections after accept() failed."""
STOP_SECONDS = 10.0
CLOSE_ROUNDS = 5
MIN_CONNECTIONS = 128
"""How many connections are allowed even if the process may have few file descriptors."""


class HttpThread:
    """An event loop in its own thread; any thread can schedule callbacks."""

    def __init__(self, clock: Clock) -> None:
        """Start nothing yet."""
        self._clock = clock
        self.connections = ConnectionPool(MIN_CONNECTIONS)
        """The connections of all servers."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._lock = threading.Lock()
        self._pending_calls: list[Callable[[], object]] = []
        """Callbacks to run when the thread starts."""
        self._listeners: set[Listener] = set()

    def start(self) -> None:
        """Start the thread. Connections get half of the process's file descriptors."""
        self.connections.limit = max(MIN_CONNECTIONS, raise_file_limit() // 2)
        with self._lock:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(_log_loop_error)
            for callback in self._pending_calls:
                self._loop.call_soon(callback)
            self._pending_calls.clear()
        self._thread.start()

    def _run(self) -> None:
        loop = self._require_loop()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._close_all())
            loop.close()

    async def _close_all(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        # An accepted socket becomes a connection within a few rounds of the loop; an aborted one closes in the next.
        for _ in range(CLOSE_ROUNDS):
            self.connections.abort_all()
            await asyncio.sleep(0)

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            msg = "the HTTP thread is not started"
            raise RuntimeError(msg)
        return self._loop

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run ``callback`` in the thread, after it is started; do nothing if it has ended."""
        with self._lock:
            if self._loop is None:
                self._pending_calls.append(callback)
                return
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(callback)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Run ``callback`` after ``seconds``; call this only in the thread."""
        return self._require_loop().call_later(seconds, callback)

    def listen(
        self,
        listening_socket: socket.socket,
        handler: Handler,
        name: str,
        admits: Callable[[socket.socket], bool] = lambda _: True,
    ) -> "Listener":
        """Serve the clients of a listening socket, called ``name`` in the log; call this only in the thread.

        Connections that ``admits`` refuses are closed.
        """
        listener = Listener(
            self._require_loop(),
            listening_socket,
            lambda: Connection(self.connections, handler, self._clock, name),
            name,
            admits=admits,
            on_close=self._listeners.discard,
        )
        self._listeners.add(listener)
        return listener

    def stop(self) -> None:
        """Close every port and connection, and end the thread; does nothing if it has ended."""
        if self._loop is not None:
            self.call_soon(self._loop.stop)
            self._thread.join(STOP_SECONDS)


def _log_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    exit_if_out_of_memory(context.get("exception"))
    log.error("unexpected error in the HTTP thread: %s", context.get("message"), exc_info=context.get("exception"))


class Listener:
    """A listening socket; use it only in the thread of its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening_socket: socket.socket,
        make_connection: Callable[[], Connection],
        name: str,
        *,
        admits: Callable[[socket.socket], bool],
        on_close: Callable[["Listener"], None],
    ) -> None:
        """Start to accept connections."""
        self._loop = loop
        self._socket = listening_socket
        self._make_connection = make_connection
        self._name = name
        self._admits = admits
        self._on_close = on_close
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listen()

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            # Most likely EMFILE. The client stays in the backlog, so the loop would call this again at once.
            log.error(  # noqa: TRY400 - not a bug of knft
                "%s: cannot accept a connection: %s; retrying in %g s", self._name, error.strerror, ACCEPT_PAUSE_SECONDS
            )
            self._loop.remove_reader(self._socket)
            self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
            return
        accepted.setblocking(False)  # noqa: FBT003 - the socket's own
        if not self._admits(accepted):
            accepted.close()
            return
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_connection, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Release the port; open connections stay open."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._on_close(self)
