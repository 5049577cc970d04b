"""``python -m tests.faults.client PLAN`` connects to agnhost's ``netexec`` until SIGTERM, and prints each connection.

It runs in the network namespace of a pod, of a node or of the control plane.
"""

import asyncio
import ipaddress
import re
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tests.faults.records import ANSWERED_BY, ClientPlan, Kind, Record, Target
from tests.support.processes import die_with_parent

ANSWER_SECONDS = 30.0
"""How long to wait for an answer. Retransmissions are counted, so a long time hides no lost packet."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TCP_TOTAL_RETRANS = struct.Struct("=100xI")  # tcpi_total_retrans in struct tcp_info.
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
_REQUESTS = {"tcp": b"GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n", "udp": b"hostname\n"}


class _Connection:
    """An open connection, or a UDP socket whose packets have one source port."""

    def __init__(self, target: Target, client: socket.socket) -> None:
        self._target, self._socket = target, client
        self.begun = self._asked = time.time()
        self._answered = 0.0
        self.server = ""
        self.answers = 0

    async def ask(self) -> str:
        """Send a request, and return the name of the pod that answers; raise OSError if none does."""
        loop = asyncio.get_running_loop()
        self._asked = time.time()
        async with asyncio.timeout(ANSWER_SECONDS):
            if not self.answers:
                await loop.sock_connect(self._socket, (self._target.address, self._target.port))
            await loop.sock_sendall(self._socket, _REQUESTS[self._target.protocol])
            answer = await self._receive(loop)
        self.answers += 1
        # Another pod's answer does not show that the pod of an open UDP flow lives.
        if answer == (self.server or answer):
            self._answered = time.time()
        return answer

    async def _receive(self, loop: asyncio.AbstractEventLoop) -> str:
        received = b""
        while True:
            more = await loop.sock_recv(self._socket, 4096)
            if not more:
                msg = "closed by the server"
                raise ConnectionError(msg)
            received += more
            if self._target.protocol == "udp":
                return received.decode().strip()
            head, separator, body = received.partition(b"\r\n\r\n")
            length = _LENGTH.search(head + b"\r\n")
            if separator and length and len(body) >= int(length[1]):
                return body.decode().strip()

    def record(self, kind: Kind, error: str = "") -> Record:
        """Return the record of the connection as it ends now."""
        again = 0
        if self._target.protocol == "tcp" and not error:
            info = self._socket.getsockopt(socket.SOL_TCP, socket.TCP_INFO, _TCP_TOTAL_RETRANS.size)
            again = int(_TCP_TOTAL_RETRANS.unpack(info)[0])
        return Record(
            *(kind, self._target.name, self.begun, time.time(), self.server, self.answers, again, error),
            *(self._asked, self._answered),
        )


@contextmanager
def _connection(target: Target) -> Iterator[_Connection]:
    is_tcp = target.protocol == "tcp"
    family = socket.AF_INET if ipaddress.ip_address(target.address).version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM) as client:
        client.settimeout(0)
        if is_tcp:
            # Otherwise closed connections would use up the ports.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        yield _Connection(target, client)


class Client:
    """Connects to the targets of a plan."""

    def __init__(self, plan: ClientPlan) -> None:
        """Connect to nothing yet."""
        self._plan = plan
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Connect until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        async with asyncio.TaskGroup() as tasks:
            for target in self._plan.targets:
                tasks.create_task(self._make_new(target))
                for _ in range(self._plan.kept):
                    tasks.create_task(self._keep(target))

    async def _make_new(self, target: Target) -> None:
        while not self._stopping.is_set():
            with _connection(target) as connection:
                try:
                    connection.server = await connection.ask()
                    _print(connection.record(Kind.NEW))
                except OSError as error:
                    _print(connection.record(Kind.NEW, _text(error)))
            await self._sleep(self._plan.pause)

    async def _keep(self, target: Target) -> None:
        """Use a connection again and again; make another one if it fails."""
        while not self._stopping.is_set():
            with _connection(target) as connection:
                try:
                    await self._use(connection)
                    _print(connection.record(Kind.KEPT))
                except OSError as error:
                    # Without an answer, it was not established.
                    _print(connection.record(Kind.KEPT if connection.server else Kind.NEW, _text(error)))
            await self._sleep(self._plan.pause)

    async def _use(self, connection: _Connection) -> None:
        while not self._stopping.is_set():
            server = await connection.ask()
            if connection.server and server != connection.server:
                msg = f"{ANSWERED_BY} {server}"
                raise ConnectionError(msg)
            connection.server = server
            await self._sleep(self._plan.kept_pause)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


def _text(error: OSError) -> str:
    return f"{type(error).__name__} {error}".strip()


def _print(record: Record) -> None:
    # The parent waits for records.
    print(msgspec.json.encode(record).decode(), flush=True)


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(Client(msgspec.json.decode(sys.argv[1], type=ClientPlan)).run())
