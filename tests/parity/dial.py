"""Sends many packets at once, from any hosts, and returns all results; all drops together cost one timeout."""

import errno
import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from tests.support.lab import icmp_errors
from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Protocol
from tests.support.lab.topology import Lab

_TYPES = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_MAX_ANSWER = 1024
_MAX_AT_ONCE = 800
_SO_RCVBUFFORCE = 33
_RAW_BUFFER = 1 << 21
DROP_TIMEOUT = 0.15
"""Seconds without an event after which the remaining packets count as dropped."""


class Target(NamedTuple):
    """One packet: the client's host, its source address (None for the kernel's choice), and the destination."""

    client: str
    source: str | None
    address: str
    port: int
    protocol: Protocol

    @property
    def family(self) -> socket.AddressFamily:
        """The socket family."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def __str__(self) -> str:
        """Return a description in the notation of ``curl``."""
        where = f"[{self.address}]" if ":" in self.address else self.address
        source = f" ({self.source})" if self.source else ""
        return f"{self.client}{source} to {where}:{self.port}/{self.protocol}"


Result = str
"""``SERVER:PORT from SOURCE`` of an answer, or REJECTED, RESET, DROPPED, or ``unreachable (ERROR)``."""
REJECTED, RESET, DROPPED = "rejected", "reset", "dropped"


def dial_all(lab: Lab, targets: Sequence[Target], drop_timeout: float = DROP_TIMEOUT) -> list[Result]:
    """Send one packet to each target, from a new port each; return their results in order."""
    found: list[Result] = []
    for first in range(0, len(targets), _MAX_AT_ONCE):
        with _Batch(lab, targets[first : first + _MAX_AT_ONCE]) as batch:
            found += batch.results(drop_timeout)
    return found


class _Batch:
    """The sockets of some targets, and a raw socket for ICMP errors of each client and family."""

    def __init__(self, lab: Lab, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._open = ExitStack()
        self._found: dict[int, Result] = {}
        self._sockets: dict[int, tuple[int, socket.socket]] = {}
        self._raws: dict[int, tuple[str, socket.socket]] = {}
        self._flows: dict[tuple[str, icmp_errors.Flow], int] = {}
        self._poll = select.epoll()
        self._open.callback(self._poll.close)
        for client in dict.fromkeys(target.client for target in targets):
            numbers = [number for number, target in enumerate(targets) if target.client == client]
            self._start(client, lab.host(client).namespace, numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, client: str, namespace: Namespace, numbers: list[int]) -> None:
        with namespace.entered():
            for family in (socket.AF_INET, socket.AF_INET6):
                raw = self._open.enter_context(icmp_errors.listen(family))
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RAW_BUFFER)
                self._raws[raw.fileno()] = client, raw
                self._poll.register(raw.fileno(), select.EPOLLIN)
            for number in numbers:
                opened = self._open.enter_context(_opened(self._targets[number]))
                self._sockets[opened.fileno()] = number, opened
        for number, opened in [self._sockets[fd] for fd in self._sockets if self._sockets[fd][0] in set(numbers)]:
            self._connect(client, number, opened)

    def _connect(self, client: str, number: int, opened: socket.socket) -> None:
        target = self._targets[number]
        code = opened.connect_ex((target.address, target.port))
        flow = icmp_errors.Flow(opened.proto, target.address, target.port, opened.getsockname()[1])
        self._flows[client, flow] = number
        if code not in {0, errno.EINPROGRESS}:
            self._found[number] = _refusal(code)
            return
        if target.protocol == "udp":
            # If the client's own host drops or rejects the packet, send() fails; the result shows which.
            with suppress(OSError):
                opened.send(b"?")
        self._poll.register(opened.fileno(), select.EPOLLIN)

    def results(self, drop_timeout: float) -> list[Result]:
        """Return the results; packets without one after ``drop_timeout`` seconds without any event are dropped."""
        last = time.monotonic()
        while len(self._found) < len(self._targets) and (left := last + drop_timeout - time.monotonic()) > 0:
            events = self._poll.poll(left)
            if not events:
                continue
            last = time.monotonic()
            # ICMP errors first: the kernel delivers them to raw sockets before it reports them to the connection.
            for _, raw in self._raws.values():
                self._read_errors(raw)
            for fd, _ in events:
                if fd in self._sockets:
                    self._read_answer(fd)
        return [self._found.get(number, DROPPED) for number in range(len(self._targets))]

    def _read_errors(self, raw: socket.socket) -> None:
        client, _ = self._raws[raw.fileno()]
        for notice in icmp_errors.receive_all(raw):
            number = self._flows.get((client, notice.flow))
            if number is not None and number not in self._found:
                self._found[number] = REJECTED if notice.error is None else _refusal(notice.error)

    def _read_answer(self, fd: int) -> None:
        number, opened = self._sockets[fd]
        self._poll.unregister(fd)
        if number in self._found:
            return
        try:
            answer = opened.recv(_MAX_ANSWER)
        except BlockingIOError:
            self._poll.register(fd, select.EPOLLIN)
        except OSError as error:
            self._found[number] = _refusal(error.errno or 0)
        else:
            self._found[number] = _answered(answer) if answer else RESET


def _answered(answer: bytes) -> Result:
    fields = json.loads(answer)
    return f"{fields['server']}:{fields['port']} from {fields['source']}"


def _refusal(code: int) -> Result:
    if code in {errno.ECONNREFUSED, errno.ECONNRESET}:
        return RESET
    return DROPPED if code == errno.ETIMEDOUT else f"unreachable ({errno.errorcode.get(code, code)})"


def _opened(target: Target) -> socket.socket:
    opened = socket.socket(target.family, *_TYPES[target.protocol])
    opened.settimeout(0)
    if target.protocol == "tcp":
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    if target.source is not None:
        opened.bind((target.source, 0))
    return opened
