"""Connections that can be ended from outside, and that find out when nobody is at their other end any more.

urllib3 makes them; here it is told which sockets to make, and who knows of them.
"""

import contextlib
import http.client
import socket
import threading
import weakref
from typing import Any

import urllib3
from msgspec import Struct
from urllib3.connection import HTTPConnection, HTTPSConnection


class Timing(Struct, frozen=True):
    """Seconds that are waited for the other end.

    ``connect`` for a connection, TLS included; ``answer`` for the head of an answer, and for more of one that is not a
    stream. A connection on which nothing comes is probed after ``idle``, every ``interval``, and counts as dead when
    nothing has been acknowledged for ``unacknowledged``: nothing else tells of an end that has lost its power. A plugin
    may take ``plugin`` to give credentials.
    """

    connect: float = 10.0
    answer: float = 30.0
    idle: int = 20
    interval: int = 10
    unacknowledged: float = 50.0
    plugin: float = 60.0


def socket_options(timing: Timing) -> list[tuple[int, int, int]]:
    """Return what every socket to the API server is set to."""
    probes = max(1, int((timing.unacknowledged - timing.idle) // timing.interval))
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, timing.idle),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, timing.interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timing.unacknowledged * 1000)),
    ]


class Sockets:
    """The sockets of one client that are open; closing it wakes whoever waits for one of them."""

    def __init__(self) -> None:
        """Start without any."""
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.closed = threading.Event()

    def add(self, made: socket.socket) -> None:
        """Know a new socket; raise ConnectionAbortedError where there are to be no more."""
        with self._lock:
            if self.closed.is_set():
                made.close()
                msg = "knft is ending"
                raise ConnectionAbortedError(msg)
            self._open.add(made)

    def close(self) -> None:
        """End every connection, also those that somebody is reading from, and let none be made."""
        with self._lock:
            self.closed.set()
            for item in list(self._open):
                shut_down(item)


def shut_down(item: socket.socket) -> None:
    """End a connection under whoever uses it: reads return at once."""
    with contextlib.suppress(OSError):
        # Not SSLSocket's, which would have the reader take what is encrypted for what is not.
        socket.socket.shutdown(item, socket.SHUT_RDWR)


class Answering:
    """What a connection adds to urllib3's: its socket, and the answer that it is giving."""

    wire: socket.socket | None = None
    answer: http.client.HTTPResponse | None = None


def track(pools: urllib3.PoolManager, sockets: Sockets, timing: Timing) -> None:
    """Have a pool manager make connections that ``sockets`` knows; they are ``Answering``."""
    pools.connection_pool_kw["socket_options"] = socket_options(timing)

    class Plain(Answering, HTTPConnection):
        def connect(self) -> None:
            super().connect()
            _begin(self, sockets)

    class Secure(Answering, HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            _begin(self, sockets)

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    pools.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


def _begin(connection: Any, sockets: Sockets) -> None:  # noqa: ANN401 - either of the two
    connection.wire = connection.sock
    sockets.add(connection.sock)

    def answer(*args: Any, **options: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - http.client's own
        made = http.client.HTTPResponse(*args, **options)
        connection.answer = made
        return made

    connection.response_class = answer
