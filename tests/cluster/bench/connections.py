"""TCP connections from a pod on the node to Services, whose endpoints are all addresses of another node."""

import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Self

from tests.cluster.churn.numbered_endpoints import FIRST, TARGET_PORT
from tests.support.lab.namespace import Namespace

_TIMEOUT = 60.0
_NUMBER_BYTES = 8
# Closing resets the connection: no TIME_WAIT on either side.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ConnectionFailedError(Exception):
    """A connection failed, or reached a wrong endpoint, at a time when all rules were in force."""


class Connections:
    """A client, and a server at the addresses of all endpoints, in this thread; a context manager."""

    def __init__(self, client: Namespace, server: Namespace) -> None:
        """Open nothing yet."""
        self._client, self._server = client, server
        self._sent = 0

    def __enter__(self) -> Self:
        """Listen."""
        with self._server.entered():
            self._listening = socket.create_server(("", TARGET_PORT), backlog=1024)
        self._listening.settimeout(_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the listening socket."""
        self._listening.close()

    def endpoint(self, address: str, port: int, seconds: float) -> int | None:
        """Return the number of the endpoint that accepts a connection; None if none does within so many seconds."""
        with self._client.entered(), socket.socket() as dialling:
            dialling.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            dialling.setblocking(False)  # noqa: FBT003
            dialling.connect_ex((address, port))
            waiting = select.poll()
            waiting.register(dialling, select.POLLOUT)
            if not waiting.poll(seconds * 1000) or dialling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return None
            return self._accept(dialling)

    def dial(self, frontends: Sequence[tuple[str, int]]) -> list[float]:
        """Connect to each frontend; return the seconds that each connection took.

        A frontend that refuses or does not answer is a ConnectionFailedError.
        """
        with self._client.entered():
            return [self._dial(frontend) for frontend in frontends]

    def _dial(self, frontend: tuple[str, int]) -> float:
        with socket.socket() as dialling:
            dialling.settimeout(_TIMEOUT)
            dialling.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            started = time.perf_counter()
            try:
                dialling.connect(frontend)
                seconds = time.perf_counter() - started
                self._accept(dialling)
            except OSError as error:
                msg = f"{frontend[0]} port {frontend[1]}: {error.strerror or error}"
                raise ConnectionFailedError(msg) from error
            return seconds

    def _accept(self, dialling: socket.socket) -> int:
        """Accept a connection, and those before it that the client has given up.

        A number that the client sends identifies it. Its port does not: the kernel translates it if an entry of
        conntrack with the same endpoint already has it, also one of a closed connection.
        """
        self._sent += 1
        number = self._sent.to_bytes(_NUMBER_BYTES, "big")
        dialling.send(number)
        while True:
            accepted, _ = self._listening.accept()
            with accepted, suppress(OSError):
                accepted.settimeout(_TIMEOUT)
                if accepted.recv(_NUMBER_BYTES) == number:
                    return int(IPv4Address(accepted.getsockname()[0])) - FIRST
