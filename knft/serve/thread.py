"""HttpThread: the one thread in which all of a process's HTTP servers work, however many ports they listen at."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from knft.serve.connection import Answer, Connection, Room
from knft.serve.moment import Clock

log = logging.getLogger("knft")

BREATH_SECONDS = 1.0
"""How long nobody is let in where the process has no more files."""
STOP_SECONDS = 10.0
ROUNDS = 5


class HttpThread:
    """An event loop in a thread of its own; work is handed to it from any thread."""

    def __init__(self, clock: Clock) -> None:
        """Do nothing yet."""
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []
        """What is to be done once the thread works."""
        self._listeners: set[Listener] = set()

    def start(self) -> None:
        """Start the thread."""
        with self._lock:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(_report)
            for work in self._waiting:
                self._loop.call_soon(work)
            self._waiting.clear()
        self._thread.start()

    def _run(self) -> None:
        loop = self._running()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._close_all())
            loop.close()

    async def _close_all(self) -> None:
        rooms = {listener.room for listener in self._listeners}
        for listener in list(self._listeners):
            listener.close()
        # What was just let in gets its place within a few rounds, and what is broken off is closed in the next one.
        for _ in range(ROUNDS):
            for room in rooms:
                room.clear()
            await asyncio.sleep(0)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            msg = "the thread was not started"
            raise RuntimeError(msg)
        return self._loop

    def soon(self, work: Callable[[], object]) -> None:
        """Have something done in the thread, when it is started if it is not; nothing once it has ended."""
        with self._lock:
            if self._loop is None:
                self._waiting.append(work)
                return
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(work)

    def later(self, seconds: float, work: Callable[[], object]) -> asyncio.TimerHandle:
        """Have something done after so many seconds; only from within the thread."""
        return self._running().call_later(seconds, work)

    def listen(self, listening: socket.socket, room: Room, answer: Answer) -> "Listener":
        """Answer whoever connects to a listening socket; only from within the thread."""
        listener = Listener(self._running(), listening, room, lambda: Connection(room, answer, self._clock))
        self._listeners.add(listener)
        listener.at_close = lambda: self._listeners.discard(listener)
        return listener

    def stop(self) -> None:
        """Close every port and every connection, and end the thread; stopping twice is fine."""
        if self._loop is not None:
            self.soon(self._loop.stop)
            self._thread.join(STOP_SECONDS)


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.error("serving HTTP: %s", context.get("message"), exc_info=context.get("exception"))


class Listener:
    """A listening socket; it belongs to the thread of its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        room: Room,
        connect: Callable[[], Connection],
    ) -> None:
        """Begin to let connections in."""
        self.room = room
        self.at_close: Callable[[], None] = lambda: None
        self._loop = loop
        self._socket = listening
        self._connect = connect
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
            # Most likely there are too many files: it would wake the loop again at once.
            log.error("a connection was not accepted: %s", error.strerror)  # noqa: TRY400 - no mistake of ours
            self._loop.remove_reader(self._socket)
            self._loop.call_later(BREATH_SECONDS, self._listen)
            return
        accepted.setblocking(False)  # noqa: FBT003 - the socket's own
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._connect, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Release the port; connections that are open go on."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self.at_close()
