"""Established connections: TCP connections and UDP flows on which a thread exchanges data again and again."""

import json
import socket
import struct
import threading
from collections.abc import Iterable
from itertools import count
from typing import Self

from tests.support.lab.topology import Host
from tests.support.packets.frontends import Frontend
from tests.support.waiting import TIMEOUT, wait_until

# Between the ports of the proxies and those of the client processes.
_PORTS = count(11000)
_SOCKETS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_PAUSE = 0.05


class EstablishedConnection:
    """A connection or UDP flow."""

    def __init__(self, host: Host, frontend: Frontend) -> None:
        """Connect, and wait for the first answer."""
        self.frontend = frontend
        self.port = next(_PORTS)
        target = frontend.target
        family = socket.AF_INET if frontend.version == 4 else socket.AF_INET6
        with host.namespace.entered():
            self._socket = socket.socket(family, _SOCKETS[target.protocol])
        self._socket.settimeout(TIMEOUT)
        if target.protocol == "tcp":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._socket.bind(("", self.port))
        self._socket.connect((target.address, target.port))
        if target.protocol == "udp":
            self._socket.send(b"?")
        self._server = json.loads(self._socket.recv(4096))

    def fault(self) -> str:
        """Exchange data; return what is wrong, "" if the same server has answered."""
        return self.receive_fault() if self.send() else f"{self.frontend}: cannot send"

    def send(self) -> bool:
        """Send data; return whether the kernel accepts it."""
        try:
            return self._socket.send(b"?") == 1
        except OSError:
            return False

    def receive_fault(self) -> str:
        """Wait for an answer to ``send``; return what is wrong, "" if the same server has answered."""
        try:
            answer = self._socket.recv(4096)
        except OSError as error:
            return f"{self.frontend}: {type(error).__name__}: {error}"
        # A TCP server echoes, a UDP server tells its name and the client's address again.
        if answer == b"?" or (answer and json.loads(answer) == self._server):
            return ""
        return f"{self.frontend}: answered by {answer!r} instead of {self._server}"

    def fileno(self) -> int:
        """Return the socket's file descriptor, to wait for answers."""
        return self._socket.fileno()

    def close(self) -> None:
        """Reset the connection."""
        self._socket.close()


class EstablishedConnections:
    """Connections, and a thread that uses them in turn; a context manager. Those that fail are used no more."""

    def __init__(self) -> None:
        """Begin without connections."""
        self._connections: list[EstablishedConnection] = []
        self._faults: list[str] = []
        self._rounds = 0
        # Held while the lists are replaced.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._use, name="established", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, and reset the connections."""
        self._stopping.set()
        self._thread.join()
        for connection in self._connections:
            connection.close()

    def __len__(self) -> int:
        """Return how many connections are left."""
        return len(self._connections)

    def add(self, connections: Iterable[EstablishedConnection]) -> None:
        """Use more connections, from the next round on."""
        with self._lock:
            self._connections = [*self._connections, *connections]

    def wait_for_round(self) -> None:
        """Return when data has been exchanged on each connection since this call."""
        ends = self._rounds + 2
        wait_until(lambda: self._rounds >= ends or not self._thread.is_alive(), "connections hang", interval=0.02)
        assert self._thread.is_alive(), "the thread of established connections failed"

    def take_faults(self) -> list[str]:
        """Return what went wrong since the last call."""
        with self._lock:
            faults, self._faults = self._faults, []
        return faults

    def _use(self) -> None:
        while not self._stopping.wait(_PAUSE):
            for connection in self._connections:
                if fault := connection.fault():
                    with self._lock:
                        self._faults.append(fault)
                        self._connections = [other for other in self._connections if other is not connection]
                    connection.close()
            self._rounds += 1
