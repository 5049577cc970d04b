"""Keeps track of the sockets that urllib3 opens, so that another thread can shut them down, and sets their options."""

import contextlib
import http.client
import socket
import threading
import weakref
from typing import Any

import urllib3
from msgspec import Struct
from urllib3.connection import HTTPConnection, HTTPSConnection


class Timeouts(Struct, frozen=True):
    """Timeouts for the API server, in seconds.

    ``connect`` is for a connection with its TLS handshake, ``response`` for the head of a response and for each read of
    a body that is not a watch. TCP sends a keepalive probe to an idle peer after ``keepalive_idle`` and then every
    ``keepalive_interval``. A connection fails if the peer acknowledges nothing for ``unacknowledged``: nothing else
    detects a peer that lost its power. ``plugin`` is for one run of a credential plugin.
    """

    connect: float = 10.0
    response: float = 30.0
    keepalive_idle: int = 20
    keepalive_interval: int = 10
    unacknowledged: float = 50.0
    plugin: float = 60.0


def socket_options(timeouts: Timeouts) -> list[tuple[int, int, int]]:
    """Return the options of every socket to the API server."""
    probes = max(1, int((timeouts.unacknowledged - timeouts.keepalive_idle) // timeouts.keepalive_interval))
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, timeouts.keepalive_idle),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, timeouts.keepalive_interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeouts.unacknowledged * 1000)),
    ]


class Sockets:
    """The open sockets of one client; ``close`` wakes every thread that waits for one of them."""

    def __init__(self) -> None:
        """Start without sockets."""
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.closed = threading.Event()

    def add(self, opened: socket.socket) -> None:
        """Register a socket; after ``close``, close it and raise ConnectionAbortedError."""
        with self._lock:
            if self.closed.is_set():
                opened.close()
                msg = "knft is shutting down"
                raise ConnectionAbortedError(msg)
            self._open.add(opened)

    def close(self) -> None:
        """Shut down every connection, also those that other threads read from, and refuse new ones."""
        with self._lock:
            self.closed.set()
            for item in list(self._open):
                shut_down(item)


def shut_down(item: socket.socket) -> None:
    """Shut down a connection while another thread may read from it: the read returns at once."""
    with contextlib.suppress(OSError):
        # SSLSocket.shutdown drops the TLS layer, and the reader would take ciphertext for plain text.
        socket.socket.shutdown(item, socket.SHUT_RDWR)


class TrackedConnection:
    """Attributes that a tracked connection has besides urllib3's: its socket, and the response that it receives."""

    raw_socket: socket.socket | None = None
    http_response: http.client.HTTPResponse | None = None


def track_connections(pool_manager: urllib3.PoolManager, sockets: Sockets, timeouts: Timeouts) -> None:
    """Make the pool manager's connections register with ``sockets``; they are ``TrackedConnection`` then."""
    pool_manager.connection_pool_kw["socket_options"] = socket_options(timeouts)

    class TrackedHttp(TrackedConnection, HTTPConnection):
        def connect(self) -> None:
            super().connect()
            _register(self, sockets)

    class TrackedHttps(TrackedConnection, HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            _register(self, sockets)

    class HttpPool(urllib3.HTTPConnectionPool):
        ConnectionCls = TrackedHttp

    class HttpsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = TrackedHttps

    pool_manager.pool_classes_by_scheme = {"http": HttpPool, "https": HttpsPool}


def _register(connection: Any, sockets: Sockets) -> None:  # noqa: ANN401 - TrackedHttp or TrackedHttps
    connection.raw_socket = connection.sock
    sockets.add(connection.sock)

    def make_response(*args: Any, **options: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - http.client's own
        response = http.client.HTTPResponse(*args, **options)
        connection.http_response = response
        return response

    connection.response_class = make_response
