"""HTTP connections: each reads one request, sends one response, and is closed after a timeout.

Connections share one thread, and a pool that limits them.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from knft.memory_errors import exit_if_out_of_memory
from knft.serve.connection_pool import ConnectionPool
from knft.serve.http_message import (
    BadRequestError,
    Request,
    Response,
    encode,
    head_length,
    parse_request,
    status_response,
)
from knft.serve.timestamp import Clock

log = logging.getLogger("knft")

MAX_HEAD_BYTES = 16 * 1024
MAX_IGNORED_BYTES = 256 * 1024
"""The connection is aborted when the client sends more than this after its request."""
REQUEST_SECONDS = 10.0
"""Timeout for receiving the request, again for a response that comes later, and again for the client to read it."""

Handler = Callable[[Request], "Response | asyncio.Future[Response]"]
"""Returns the response to a request, or a future of the loop; without it after ``REQUEST_SECONDS``, the client is
disconnected."""
_Result = TypeVar("_Result")


class Connection(asyncio.Protocol):
    """One client: reads a request, sends the response, and gives the client time to read it."""

    def __init__(self, pool: ConnectionPool, handler: Handler, clock: Clock, name: str) -> None:
        """Call ``handler`` in the thread of all connections, so it must be quick; log messages contain ``name``."""
        self._pool = pool
        self._handler = handler
        self._clock = clock
        self._name = name
        self.client = (name, "")
        self.held_bytes = 0
        self._head = bytearray()
        self._ignored_bytes = 0
        self._has_request = False
        self._response: asyncio.Future[Response] | None = None
        self._transport: asyncio.Transport
        self._timeout: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request."""
        self._transport = transport  # type: ignore[assignment] # asyncio's base type; a TCP transport is a Transport
        # None if the client has reset the connection already.
        peer = transport.get_extra_info("peername")
        self.client = (self._name, str(peer[0]) if peer else "")
        self._timeout = self._start_timeout()
        self._pool.add(self)

    def _start_timeout(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(REQUEST_SECONDS, self.abort)

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        """Release what the connection holds."""
        self._timeout.cancel()
        if self._response is not None:
            self._response.cancel()
        self._pool.remove(self)

    def data_received(self, data: bytes) -> None:
        """Collect the head of the request; respond when it is complete."""
        if self._has_request:
            # Closing a socket with unread data sends a reset, and the client could lose the response.
            self._ignored_bytes += len(data)
            if self._ignored_bytes > MAX_IGNORED_BYTES:
                self.abort()
            return
        searched = len(self._head)
        self._head += data.lstrip(b"\r\n") if not searched else data
        length = head_length(self._head, searched)
        if (length or len(self._head)) > MAX_HEAD_BYTES:
            self._send(Request("GET", ""), status_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        elif length is not None:
            self._respond(bytes(self._head[:length]))
        else:
            self._pool.hold_bytes(self, len(self._head))

    def _respond(self, head: bytes) -> None:
        try:
            request = parse_request(head)
        except BadRequestError as error:
            self._send(Request("GET", ""), status_response(error.status))
            return
        found = self._result_or_error(request, lambda: self._handler(request))
        if isinstance(found, Response):
            self._send(request, found)
            return
        self._end_request()
        self._response = found
        found.add_done_callback(partial(self._send_result, request))

    def _result_or_error(self, request: Request, call: Callable[[], _Result]) -> "_Result | Response":
        """Return the result of ``call``, or the response to a request that ends in an error of knft."""
        try:
            return call()
        except Exception as error:
            exit_if_out_of_memory(error)
            log.exception("%s: unexpected error while serving %r; please report this", self._name, request.path)
            return status_response(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send_result(self, request: Request, response: "asyncio.Future[Response]") -> None:
        if not response.cancelled():
            self._send(request, self._result_or_error(request, response.result))

    def _end_request(self) -> None:
        """Ignore what the client sends from now on, and start the next timeout."""
        self._has_request = True
        self._head.clear()
        self._timeout.cancel()
        self._timeout = self._start_timeout()

    def _send(self, request: Request, response: Response) -> None:
        self._end_request()
        self._transport.write(encode(response, self._clock().unix_seconds, with_body=request.method != "HEAD"))
        self._transport.write_eof()
        self._pool.hold_bytes(self, self._transport.get_write_buffer_size())
