"""Clients: dial an address from a host and tell what came of it.

``dial`` tells apart everything that can come of it; ``dial_many``, ``dial_each`` and ``dial_at_once`` are fast and only
say who answered. ``OpenConnection`` stays open while rules change.
"""

import errno
import ipaddress
import itertools
import json
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from . import sctp, unreachable
from .outcomes import Answered, AnyProtocol, Outcome, Protocol, Rejected, Silent, Unreachable
from .topology import Host

NOBODY_ANSWERED = "(nobody)"
"""How ``dial_many`` counts connections without an answer, of whatever kind."""

_LONGEST_ANSWER = 4096
_KINDS: dict[AnyProtocol, tuple[socket.SocketKind, int]] = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    "sctp": (socket.SOCK_RAW, socket.IPPROTO_SCTP),
}
# Raw sockets are given no port by the kernel; one after the other, so that none is that of a flow still known.
_PORTS = itertools.cycle(range(20000, 60000))
# Closing resets the connection: no TIME_WAIT, and the port is free again at once.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_NOBODY_LISTENS = {errno.ECONNREFUSED, errno.ECONNRESET}


class _Call(NamedTuple):
    """Whom to dial, and from where."""

    destination: str
    port: int
    protocol: AnyProtocol
    source: str | None
    source_port: int

    @property
    def family(self) -> socket.AddressFamily:
        version = ipaddress.ip_address(self.destination).version
        return socket.AF_INET if version == 4 else socket.AF_INET6

    @property
    def any_address(self) -> str:
        return "0.0.0.0" if self.family == socket.AF_INET else "::"  # noqa: S104 - in a namespace

    def kernel_port(self, port: int) -> int:
        """Return the port as a socket is told it: the kernel knows no ports of raw sockets."""
        return 0 if self.protocol == "sctp" else port

    @property
    def question(self) -> bytes:
        """What makes the server answer, where being connected does not."""
        if self.protocol == "sctp":
            return sctp.init(self.source_port, self.port, tag=self.source_port)
        return b"?" if self.protocol == "udp" else b""


def dial(
    host: Host,
    destination: str,
    port: int,
    protocol: AnyProtocol = "tcp",
    *,
    source: str | None = None,
    source_port: int = 0,
    timeout: float = 1.0,
) -> Outcome:
    """Connect (or send a datagram) from the host and wait for the server's line, at most ``timeout`` seconds.

    ``source`` and ``source_port`` choose the client's end; by default the kernel does.
    """
    if protocol == "sctp":
        source_port = source_port or next(_PORTS)
    call = _Call(destination, port, protocol, source, source_port)
    with host.namespace.entered():
        client, raw = _open(call), unreachable.listen(call.family)
    with client, raw:
        client.settimeout(0)
        return _converse(client, raw, call, timeout)


def dial_many(
    host: Host,
    destination: str,
    port: int,
    protocol: Protocol,
    count: int,
    *,
    source: str | None = None,
    timeout: float = 1.0,
) -> Counter[str]:
    """Dial ``count`` times, one after the other and each from a new port, and count the names of who answered."""
    call = _Call(destination, port, protocol, source, 0)
    names: Counter[str] = Counter()
    with host.namespace.entered():
        for _ in range(count):
            names[_ask(call, timeout)] += 1
    return names


def dial_each(
    host: Host, destination: str, port: int, protocol: Protocol, sources: Iterable[str], *, timeout: float = 1.0
) -> dict[str, str]:
    """Dial once from each source address, one after the other; return the name of who answered each."""
    with host.namespace.entered():
        return {source: _ask(_Call(destination, port, protocol, source, 0), timeout) for source in sources}


class Target(NamedTuple):
    """Whom to dial."""

    address: str
    port: int
    protocol: Protocol


def dial_at_once(host: Host, targets: Sequence[Target], *, timeout: float = 1.0) -> list[str]:
    """Dial all targets at the same time, each from a new port, and return the name of who answered each.

    Those that nobody answers cost one ``timeout`` together.
    """
    names = [NOBODY_ANSWERED] * len(targets)
    with ExitStack() as opened:
        with host.namespace.entered():
            clients = [opened.enter_context(_open(_Call(*target, None, 0))) for target in targets]
        waiting = select.poll()
        numbers = {client.fileno(): number for number, client in enumerate(clients)}
        for client, target in zip(clients, targets, strict=True):
            _begin(client, target)
            waiting.register(client, select.POLLIN)
        ends = time.monotonic() + timeout
        while numbers and (left := ends - time.monotonic()) > 0:
            for fd, _ in waiting.poll(left * 1000):
                waiting.unregister(fd)
                number = numbers.pop(fd)
                names[number] = _heard(clients[number])
    return names


def _begin(client: socket.socket, target: Target) -> None:
    client.settimeout(0)
    client.connect_ex((target.address, target.port))
    if target.protocol == "udp":
        with suppress(OSError):
            client.send(b"?")


def _heard(client: socket.socket) -> str:
    try:
        said = client.recv(_LONGEST_ANSWER)
    except OSError:
        return NOBODY_ANSWERED
    return str(json.loads(said)["server"]) if said else NOBODY_ANSWERED


class OpenConnection:
    """A TCP connection that stays open; a context manager, which resets it at the end."""

    def __init__(self, host: Host, destination: str, port: int, *, source_port: int = 0, timeout: float = 5.0) -> None:
        """Connect, and hear who answers."""
        with host.namespace.entered():
            self._client = _open(_Call(destination, port, "tcp", None, source_port))
        self._client.settimeout(timeout)
        self._client.connect((destination, port))
        self.server = str(json.loads(self._client.recv(_LONGEST_ANSWER))["server"])

    def __enter__(self) -> Self:
        """Stay open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Reset it."""
        self._client.close()

    def echoes(self, said: bytes) -> bool:
        """Tell whether the server says back what it is told."""
        try:
            self._client.send(said)
            return self._client.recv(_LONGEST_ANSWER) == said
        except OSError:
            return False


def _ask(call: _Call, timeout: float) -> str:
    with _open(call) as client:
        client.settimeout(timeout)
        try:
            client.connect((call.destination, call.port))
            if call.protocol == "udp":
                client.send(b"?")
            said = client.recv(_LONGEST_ANSWER)
        except OSError:
            return NOBODY_ANSWERED
    return str(json.loads(said)["server"]) if said else NOBODY_ANSWERED


def _open(call: _Call) -> socket.socket:
    client = socket.socket(call.family, *_KINDS[call.protocol])
    try:
        if call.protocol == "tcp":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if call.source is not None or call.source_port:
            client.bind((call.source or call.any_address, call.kernel_port(call.source_port)))
    except OSError:
        client.close()
        raise
    return client


def _converse(client: socket.socket, raw: socket.socket, call: _Call, timeout: float) -> Outcome:
    started = time.monotonic()
    code = client.connect_ex((call.destination, call.kernel_port(call.port)))
    if code not in {0, errno.EINPROGRESS}:
        return _judge(code, call.protocol)
    if question := call.question:
        # Where the client's own host drops or rejects the packet, send() says EPERM: what comes next tells which.
        with suppress(PermissionError):
            client.send(question)
    destination = str(ipaddress.ip_address(call.destination))  # As notices spell it.
    own_port = call.source_port or client.getsockname()[1]
    flow = unreachable.Flow(client.proto, destination, call.port, own_port)
    waiting = select.poll()
    waiting.register(client, select.POLLIN)
    waiting.register(raw, select.POLLIN)
    while (left := started + timeout - time.monotonic()) > 0:
        if not waiting.poll(left * 1000):
            continue
        # The notice first: the kernel tells the raw socket before it tells the connection.
        notice = unreachable.heard(raw, flow)
        if notice is not None:
            refused = Rejected("icmp", notice.sender)
            return refused if notice.error is None else Unreachable(notice.error)
        outcome = _receive(client, call, time.monotonic() - started)
        if outcome is not None:
            return outcome
    return Silent()


def _receive(client: socket.socket, call: _Call, elapsed: float) -> Outcome | None:
    try:
        if call.protocol == "sctp":
            found = sctp.receive(client)
            if found is None or (found[0].source_port, found[0].destination_port) != (call.port, call.source_port):
                return None
            said = found[0].cookie
        else:
            said = client.recv(_LONGEST_ANSWER)
    except BlockingIOError:
        return None
    except OSError as error:
        return _judge(error.errno or 0, call.protocol)
    # The answer is far shorter than a segment, so it comes in one piece; an end without it is no answer.
    return Answered(**json.loads(said), elapsed=elapsed) if said else Rejected("reset")


def _judge(code: int, protocol: AnyProtocol) -> Outcome:
    if code in _NOBODY_LISTENS:
        # Only TCP knows a reset: the others are refused by ICMP alone.
        return Rejected("reset" if protocol == "tcp" else "icmp")
    return Silent() if code == errno.ETIMEDOUT else Unreachable(code)
