"""Connections: one request, one answer, and little patience; many cost no thread, and the slow ones go first."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from knft.serve.message import BadRequestError, Request, Response, encode, head_length, parse_request, sentence
from knft.serve.moment import Clock

log = logging.getLogger("knft")

MOST_HEAD_BYTES = 16 * 1024
MOST_IGNORED_BYTES = 256 * 1024
"""So much may come in after a request before the connection is broken off."""
REQUEST_SECONDS = 10.0
"""How long a request may take to come in, and how long its sender may take to read the answer."""

Answer = Callable[[Request], Response]


class Room:
    """The connections of one purpose; when it is full, whoever has been in it for longest has to leave.

    Somebody who opens connections and says nothing keeps nobody out so: a probe is answered at once and gone.
    """

    def __init__(self, most: int) -> None:
        """Have ``most`` connections at a time."""
        self._most = most
        self._connections: dict[Connection, None] = {}

    def enter(self, connection: "Connection") -> None:
        """Note an open connection."""
        if len(self._connections) >= self._most:
            oldest = next(iter(self._connections))
            self.leave(oldest)
            oldest.abort()
        self._connections[connection] = None

    def leave(self, connection: "Connection") -> None:
        """Note one that is closed."""
        self._connections.pop(connection, None)

    def clear(self) -> None:
        """Break off all connections."""
        for connection in list(self._connections):
            connection.abort()

    def __len__(self) -> int:
        """Count the open connections."""
        return len(self._connections)


class Connection(asyncio.Protocol):
    """One client: reads a request, answers, and waits a while for the client to have read that."""

    def __init__(self, room: Room, answer: Answer, clock: Clock) -> None:
        """``answer`` must be quick: all others wait for it."""
        self._room = room
        self._answer = answer
        self._clock = clock
        self._head = bytearray()
        self._ignored = 0
        self._answered = False
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the request."""
        self._transport = transport  # type: ignore[assignment] # the type of all transports, and this one's is a stream's
        self._deadline = self._in_time()
        self._room.enter(self)

    def _in_time(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(REQUEST_SECONDS, self.abort)

    def abort(self) -> None:
        """Break the connection off."""
        self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        """Let go."""
        self._deadline.cancel()
        self._room.leave(self)

    def data_received(self, data: bytes) -> None:
        """Take in a piece of the request; answer when its head is complete."""
        if self._answered:
            # To close with something unread would take the answer away from who has not read it.
            self._ignored += len(data)
            if self._ignored > MOST_IGNORED_BYTES:
                self.abort()
            return
        looked_at = len(self._head)
        self._head += data.lstrip(b"\r\n") if not looked_at else data
        length = head_length(self._head, looked_at)
        if (length or len(self._head)) > MOST_HEAD_BYTES:
            self._send(Request("GET", ""), sentence(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        elif length is not None:
            self._respond(bytes(self._head[:length]))

    def _respond(self, head: bytes) -> None:
        request = Request("GET", "")
        try:
            request = parse_request(head)
            response = self._answer(request)
        except BadRequestError as error:
            response = sentence(error.status)
        except Exception:
            log.exception("%s could not be answered; please report this", request.path)
            response = sentence(HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(request, response)

    def _send(self, request: Request, response: Response) -> None:
        self._answered = True
        self._head.clear()
        self._deadline.cancel()
        self._deadline = self._in_time()
        self._transport.write(encode(response, self._clock().timestamp, with_body=request.method != "HEAD"))
        self._transport.write_eof()
