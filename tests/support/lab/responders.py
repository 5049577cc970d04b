"""Servers that tell each client who answered, and the client's address as the server sees it.

The answer is one line of JSON with the fields of ``outcomes.Answered``. One thread serves all sockets; each is in the
namespace of its host. After the answer a TCP server echoes until the client closes the connection, so that TIME_WAIT is
on the client.
"""

import ipaddress
import json
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.support.lab import sctp
from tests.support.lab.outcomes import AnyProtocol
from tests.support.lab.topology import Host

_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class _Server:
    host: str
    address: str
    port: int
    protocol: AnyProtocol

    def answer(self, source: str, source_port: int) -> bytes:
        fields = {
            "server": self.host,
            "address": self.address,
            "port": self.port,
            "source": source,
            "source_port": source_port,
        }
        return json.dumps(fields).encode() + b"\n"


class Responders:
    """A set of servers; a context manager, which starts and ends the thread that serves them."""

    def __init__(self) -> None:
        """Start with no server."""
        self._selector = selectors.DefaultSelector()
        # Ends the thread: one byte wakes it up.
        self._stop_sender, self._stop_receiver = socket.socketpair()
        self._selector.register(self._stop_receiver, selectors.EVENT_READ)
        # Held while events are handled and while servers are added or removed, never while waiting.
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._serve_forever, name="responders", daemon=True)

    def __enter__(self) -> Self:
        """Start serving."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and close every socket."""
        self._stop_sender.send(b"x")
        self._thread.join()
        for key in tuple(self._selector.get_map().values()):
            _socket_of(key).close()
        self._selector.close()
        self._stop_sender.close()

    def serve(self, host: Host, port: int, protocol: AnyProtocol = "tcp", address: str | None = None) -> None:
        """Add a server at ``address``, or at both main addresses of the host; it is listening when this returns."""
        for where in (host.ipv4, host.ipv6) if address is None else (address,):
            server = _Server(host.name, where, port, protocol)
            with host.namespace.entered():
                listening = _listen(server)
            with self._lock:
                self._selector.register(listening, selectors.EVENT_READ, server)

    def withdraw(self, host: Host, port: int, protocol: AnyProtocol = "tcp") -> None:
        """Remove the servers at that port of the host, at all its addresses; open connections stay."""
        with self._lock:
            for key in tuple(self._selector.get_map().values()):
                server = key.data
                if isinstance(server, _Server) and (
                    (server.host, server.port, server.protocol) == (host.name, port, protocol)
                ):
                    self._drop(key)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many connections and datagrams each host has received; hosts without any are left out."""
        with self._lock:
            return dict(self._counts)

    def reset_counts(self) -> None:
        """Reset all counts to zero."""
        with self._lock:
            self._counts.clear()

    def _serve_forever(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._stop_receiver:
                    return
                with self._lock:
                    # The server may have been withdrawn since select() returned.
                    if _socket_of(key).fileno() != -1:
                        self._handle(key)

    def _handle(self, key: selectors.SelectorKey) -> None:
        server = key.data
        if not isinstance(server, _Server):
            self._echo(key)
        elif server.protocol == "tcp":
            self._accept(_socket_of(key), server)
        elif server.protocol == "sctp":
            self._reply_to_sctp(_socket_of(key), server)
        else:
            self._reply(_socket_of(key), server)

    def _accept(self, listening: socket.socket, server: _Server) -> None:
        try:
            connection, peer = listening.accept()
        except OSError:  # The client has closed already.
            return
        connection.settimeout(0)
        self._counts[server.host] += 1
        try:
            connection.send(server.answer(peer[0], peer[1]))
        except OSError:
            connection.close()
            return
        self._selector.register(connection, selectors.EVENT_READ)

    def _reply(self, bound: socket.socket, server: _Server) -> None:
        try:
            _, peer = bound.recvfrom(2048)
        except OSError:  # An ICMP error to an earlier answer.
            return
        self._counts[server.host] += 1
        try:
            bound.sendto(server.answer(peer[0], peer[1]), peer)
        except OSError:  # No route to the client, which times out.
            return

    def _reply_to_sctp(self, raw: socket.socket, server: _Server) -> None:
        with suppress(OSError):  # As with UDP.
            found = sctp.receive(raw)
            # A raw socket receives packets to every port, and answers to clients on its own host.
            if found is None or found[0].destination_port != server.port or found[0].cookie:
                return
            request, peer = found
            self._counts[server.host] += 1
            raw.sendto(sctp.init_ack(request, server.answer(peer, request.source_port)), (peer, 0))

    def _echo(self, key: selectors.SelectorKey) -> None:
        """Echo what the client sends; close the connection when the client has closed it."""
        try:
            data = _socket_of(key).recv(2048)
            _socket_of(key).send(data)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(key)

    def _drop(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        _socket_of(key).close()


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    if not isinstance(key.fileobj, socket.socket):
        msg = "the selector has only sockets"
        raise TypeError(msg)
    return key.fileobj


def _open(family: socket.AddressFamily, protocol: AnyProtocol) -> socket.socket:
    if protocol == "sctp":
        return sctp.open_raw(family)
    return socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)


def _listen(server: _Server) -> socket.socket:
    version = ipaddress.ip_address(server.address).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    listening = _open(family, server.protocol)
    try:
        if server.protocol == "tcp":
            # Open connections of a withdrawn server do not block its port.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bound to one address, so that answers have it as their source.
        listening.bind((server.address, 0 if server.protocol == "sctp" else server.port))
        if server.protocol == "tcp":
            listening.listen(_BACKLOG)
        listening.settimeout(0)
    except OSError:
        listening.close()
        raise
    return listening
