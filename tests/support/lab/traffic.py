"""Clients: connect to an address from a host, and return the outcome.

``dial`` returns the exact outcome; ``dial_many``, ``dial_each`` and ``dial_at_once`` are faster, and return only which
server answered. ``OpenConnection`` stays open while rules change.

The default timeout is long. Pass a short one if neither an answer nor an error is expected.
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Literal, NamedTuple, Self

from tests.support.lab import icmp_errors, sctp
from tests.support.lab.outcomes import Answered, AnyProtocol, Outcome, Protocol, Rejected, Silent, Unreachable
from tests.support.lab.topology import Host
from tests.support.waiting import TIMEOUT

NO_ANSWER = "(no answer)"
"""Stands for the server of a connection without an answer, for whatever reason."""

_MAX_ANSWER = 4096
_SOCKET_TYPES: dict[AnyProtocol, tuple[socket.SocketKind, int]] = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    "sctp": (socket.SOCK_RAW, socket.IPPROTO_SCTP),
}
# The kernel gives raw sockets no port. Ports are used in turn, so that none belongs to a known conntrack entry.
_PORTS = itertools.cycle(range(20000, 60000))
_CHOSEN_BY_THE_KERNEL = itertools.repeat(0)
# Closing resets the connection: there is no TIME_WAIT, and the port is free at once.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_REFUSED = {errno.ECONNREFUSED, errno.ECONNRESET}


class _Request(NamedTuple):
    """A destination, and the source to use."""

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
        """Return the port to pass to the kernel, which knows no ports of raw sockets."""
        return 0 if self.protocol == "sctp" else port

    @property
    def question(self) -> bytes:
        """The data that makes a server answer if a connection alone does not."""
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
    timeout: float = TIMEOUT,
) -> Outcome:
    """Connect (or send a datagram) from the host, and wait for the answer at most ``timeout`` seconds.

    ``source`` and ``source_port`` are the client's address and port; by default the kernel chooses them.
    """
    if protocol == "sctp":
        source_port = source_port or next(_PORTS)
    request = _Request(destination, port, protocol, source, source_port)
    with host.namespace.entered():
        client, raw = _open(request), icmp_errors.listen(request.family)
    with client, raw:
        client.settimeout(0)
        return _exchange(client, raw, request, timeout)


def dial_many(
    host: Host,
    destination: str,
    port: int,
    protocol: Protocol,
    count: int,
    *,
    source: str | None = None,
    source_ports: Iterator[int] = _CHOSEN_BY_THE_KERNEL,
    timeout: float = TIMEOUT,
) -> Counter[str]:
    """Connect ``count`` times, one after the other; return how often each server answered.

    Each connection has the next of ``source_ports``. The kernel may choose a port again within seconds.
    """
    names: Counter[str] = Counter()
    with host.namespace.entered():
        for source_port in itertools.islice(source_ports, count):
            names[_server_of(_Request(destination, port, protocol, source, source_port), timeout)] += 1
    return names


def dial_each(
    host: Host, destination: str, port: int, protocol: Protocol, sources: Iterable[str], *, timeout: float = TIMEOUT
) -> dict[str, str]:
    """Connect once from each source address, one after the other; return the server that answered each."""
    with host.namespace.entered():
        return {source: _server_of(_Request(destination, port, protocol, source, 0), timeout) for source in sources}


class DialTarget(NamedTuple):
    """A destination."""

    address: str
    port: int
    protocol: Protocol


def dial_at_once(host: Host, targets: Sequence[DialTarget], *, timeout: float = TIMEOUT) -> list[str]:
    """Connect to all targets at the same time, each from a new port; return the server that answered each.

    All targets that do not answer cost one ``timeout`` together.
    """
    names = [NO_ANSWER] * len(targets)
    with ExitStack() as opened:
        with host.namespace.entered():
            clients = [opened.enter_context(_open(_Request(*target, None, 0))) for target in targets]
        waiting = select.poll()
        numbers = {client.fileno(): number for number, client in enumerate(clients)}
        for client, target in zip(clients, targets, strict=True):
            _start(client, target)
            waiting.register(client, select.POLLIN)
        ends = time.monotonic() + timeout
        while numbers and (left := ends - time.monotonic()) > 0:
            for fd, _ in waiting.poll(left * 1000):
                waiting.unregister(fd)
                number = numbers.pop(fd)
                names[number] = _read_server(clients[number])
    return names


def _start(client: socket.socket, target: DialTarget) -> None:
    client.settimeout(0)
    client.connect_ex((target.address, target.port))
    if target.protocol == "udp":
        with suppress(OSError):
            client.send(b"?")


def _read_server(client: socket.socket) -> str:
    try:
        answer = client.recv(_MAX_ANSWER)
    except OSError:
        return NO_ANSWER
    return str(json.loads(answer)["server"]) if answer else NO_ANSWER


class OpenConnection:
    """A TCP connection that stays open; a context manager, which resets it at the end."""

    def __init__(self, host: Host, destination: str, port: int, *, source_port: int = 0) -> None:
        """Connect, and read which server answers."""
        with host.namespace.entered():
            self._client = _open(_Request(destination, port, "tcp", None, source_port))
        self._client.settimeout(TIMEOUT)
        self._client.connect((destination, port))
        self.server = str(json.loads(self._client.recv(_MAX_ANSWER))["server"])

    def __enter__(self) -> Self:
        """Return the open connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Reset the connection."""
        self._client.close()

    def send(self, data: bytes, *, timeout: float = TIMEOUT) -> Literal["echo", "reset", "silence"]:
        """Send data, and return what comes back within ``timeout`` seconds."""
        try:
            self._client.settimeout(timeout)
            self._client.send(data)
            return "echo" if self._client.recv(_MAX_ANSWER) == data else "reset"
        except TimeoutError:
            return "silence"
        except ConnectionResetError:
            return "reset"

    def echoes(self, data: bytes, *, timeout: float = TIMEOUT) -> bool:
        """Tell whether the server echoes the data within ``timeout`` seconds."""
        try:
            self._client.settimeout(timeout)
            self._client.send(data)
            return self._client.recv(_MAX_ANSWER) == data
        except OSError:
            return False


def _server_of(request: _Request, timeout: float) -> str:
    with _open(request) as client:
        client.settimeout(timeout)
        try:
            client.connect((request.destination, request.port))
            if request.protocol == "udp":
                client.send(b"?")
            answer = client.recv(_MAX_ANSWER)
        except OSError:
            return NO_ANSWER
    return str(json.loads(answer)["server"]) if answer else NO_ANSWER


def _open(request: _Request) -> socket.socket:
    client = socket.socket(request.family, *_SOCKET_TYPES[request.protocol])
    try:
        if request.protocol == "tcp":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if request.source is not None or request.source_port:
            client.bind((request.source or request.any_address, request.kernel_port(request.source_port)))
    except OSError:
        client.close()
        raise
    return client


def _exchange(client: socket.socket, raw: socket.socket, request: _Request, timeout: float) -> Outcome:
    started = time.monotonic()
    code = client.connect_ex((request.destination, request.kernel_port(request.port)))
    if code not in {0, errno.EINPROGRESS}:
        return _outcome_of(code, request.protocol)
    if question := request.question:
        # If the client's own host drops or rejects the packet, send() fails with EPERM; the outcome shows which.
        with suppress(PermissionError):
            client.send(question)
    destination = str(ipaddress.ip_address(request.destination))  # The canonical form, as in the ICMP error.
    own_port = request.source_port or client.getsockname()[1]
    flow = icmp_errors.Flow(client.proto, destination, request.port, own_port)
    waiting = select.poll()
    waiting.register(client, select.POLLIN)
    waiting.register(raw, select.POLLIN)
    while (left := started + timeout - time.monotonic()) > 0:
        if not waiting.poll(left * 1000):
            continue
        # The raw socket first: the kernel delivers an ICMP error to it before it reports it to the connection.
        notice = icmp_errors.receive(raw, flow)
        if notice is not None:
            refused = Rejected("icmp", notice.sender)
            return refused if notice.error is None else Unreachable(notice.error)
        outcome = _receive(client, request, time.monotonic() - started)
        if outcome is not None:
            return outcome
    return Silent()


def _receive(client: socket.socket, request: _Request, elapsed: float) -> Outcome | None:
    try:
        if request.protocol == "sctp":
            found = sctp.receive(client)
            if found is None or (found[0].source_port, found[0].destination_port) != (
                request.port,
                request.source_port,
            ):
                return None
            answer = found[0].cookie
        else:
            answer = client.recv(_MAX_ANSWER)
    except BlockingIOError:
        return None
    except OSError as error:
        return _outcome_of(error.errno or 0, request.protocol)
    # The answer is shorter than a segment, so one recv() has all of it; end of file without it is a reset.
    return Answered(**json.loads(answer), elapsed=elapsed) if answer else Rejected("reset")


def _outcome_of(code: int, protocol: AnyProtocol) -> Outcome:
    if code in _REFUSED:
        # Only TCP has resets; ICMP errors refuse the other protocols.
        return Rejected("reset" if protocol == "tcp" else "icmp")
    return Silent() if code == errno.ETIMEDOUT else Unreachable(code)
