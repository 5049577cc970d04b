"""``python -m tests.support.lab.client_process PLAN`` connects to targets at random, and prints each connection.

It runs in a host's namespace, and ends after as many connections as the plan says, or with SIGTERM.
"""

import errno
import ipaddress
import itertools
import json
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from random import Random

from tests.support.lab.clients import NONE, ClientTarget, Connection
from tests.support.processes import die_with_parent

ANSWER_TIMEOUT = 60.0
"""Seconds to wait for an answer. Retransmissions are counted, so a long timeout hides no lost packet."""

# Source ports are used in turn, because conntrack keeps a UDP entry for 30 seconds.
_PORTS = range(20000, 60000)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TCP_TOTAL_RETRANS = struct.Struct("=100xI")  # tcpi_total_retrans in struct tcp_info.


def main() -> None:
    """Connect, and print each connection."""
    die_with_parent()
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    plan = json.loads(sys.argv[1])
    targets = [ClientTarget(*target) for target in plan["targets"]]
    connections = itertools.islice(_connections(targets, Random(plan["seed"])), plan["count"])  # noqa: S311 - reproducible
    for number, connection in enumerate(connections):
        # The parent may wait for the first one.
        print(connection, flush=number == 0)
        time.sleep(plan["pause"])
        if signals:
            break


def _connections(targets: list[ClientTarget], chance: Random) -> Iterator[Connection]:
    ports = itertools.cycle(_PORTS)
    while True:
        number = chance.randrange(len(targets))
        target = targets[number]
        source = chance.choice(target.sources) if target.sources else NONE
        begun = time.monotonic()
        server, served_at, again, trouble = _connect(target, source, ports)
        yield Connection(number, source, begun, time.monotonic(), server, served_at, again, trouble)


def _connect(target: ClientTarget, source: str, ports: Iterator[int]) -> tuple[str, int, int, str]:
    is_tcp = target.protocol == "tcp"
    with _socket(target) as client:
        try:
            _bind(client, "" if source == NONE else source, ports)
            client.connect((target.address, target.port))
            if not is_tcp:
                client.send(b"?")
            answer = json.loads(client.recv(4096) or "{}")
            again = _retransmissions(client) if is_tcp else 0
        except OSError as error:
            # Of errors that have no class of their own, the number tells what happened.
            name = errno.errorcode.get(error.errno or 0) if type(error) is OSError else None
            return NONE, 0, 0, name or type(error).__name__
    return (answer["server"], answer["port"], again, NONE) if answer else (NONE, 0, again, "Closed")


def _bind(client: socket.socket, address: str, ports: Iterator[int]) -> None:
    """Bind the next port that no other socket of the host uses: long-lived connections and servers have some."""
    for port in ports:
        try:
            client.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return


def _retransmissions(client: socket.socket) -> int:
    info = client.getsockopt(socket.SOL_TCP, socket.TCP_INFO, _TCP_TOTAL_RETRANS.size)
    return int(_TCP_TOTAL_RETRANS.unpack(info)[0])


def _socket(target: ClientTarget) -> socket.socket:
    family = socket.AF_INET if ipaddress.ip_address(target.address).version == 4 else socket.AF_INET6
    client = socket.socket(family, socket.SOCK_STREAM if target.protocol == "tcp" else socket.SOCK_DGRAM)
    client.settimeout(ANSWER_TIMEOUT)
    if target.protocol == "tcp":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    return client


if __name__ == "__main__":
    main()
