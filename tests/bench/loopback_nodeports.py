"""``python -m tests.bench.loopback_nodeports`` measures what the process that serves NodePorts on loopback needs.

It runs that process alone, in a network namespace of its own, with one NodePort; client and endpoint are this process.
CPU time and memory are those of the forwarder's process; memory is the proportional set size.
"""

import argparse
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from knft.families import Family
from knft.forwarder.forwarder import Forwarder
from knft.forwarder.ports import ForwardedPort
from tests.bench.machine import describe, load_at_end
from tests.bench.process_tree import descendants, own_cpu_seconds, pss_mib
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

NODE_PORT, ENDPOINT_PORT = 30080, 8080
LOOPBACK = "127.0.0.1"
SETTLE_SECONDS, START_SECONDS = 1.0, 30.0
BACKLOG = 128
PIECE = 1 << 18
GIGABYTE = 10**9


def main() -> None:
    """Measure, and print the values."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loopback_nodeports", description=__doc__)
    parser.add_argument("--connections", type=int, default=2000, help="connections one after the other in each run")
    parser.add_argument("--idle", type=int, default=1000, help="connections that are open at the same time")
    parser.add_argument("--gigabytes", type=float, default=2, help="data through one connection in each run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each; the median counts")
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    print("\n".join(f"{name}: {value}" for name, value in describe().items()))
    with closing(Namespace.create("loopback")) as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        with namespace.entered():
            _measure(arguments)
    print("\n".join(f"{name}: {value}" for name, value in load_at_end().items()))


def _measure(arguments: argparse.Namespace) -> None:
    with _forwarder() as pid, socket.create_server((LOOPBACK, ENDPOINT_PORT), backlog=BACKLOG) as endpoint:
        time.sleep(SETTLE_SECONDS)
        print(f"memory without connections: {pss_mib(pid):.1f} MiB")
        each = statistics.median(_connection_cpu(pid, endpoint, arguments.connections) for _ in range(arguments.runs))
        print(f"a connection: {each * 1e3:.3f} ms of CPU time")
        data = round(arguments.gigabytes * GIGABYTE)
        found = statistics.median(_transfer_cpu(pid, endpoint, data) for _ in range(arguments.runs))
        print(f"a GB through a connection: {found / arguments.gigabytes:.2f} s of CPU time")
        with ExitStack() as stack:
            for _ in range(arguments.idle):
                for connection in _connect(endpoint):
                    stack.enter_context(connection)
            time.sleep(SETTLE_SECONDS)
            print(f"memory with {arguments.idle} idle connections: {pss_mib(pid):.1f} MiB")


@contextmanager
def _forwarder() -> Iterator[int]:
    """Run the forwarder with one NodePort, and yield the identifier of its process when it listens."""
    forwarder, stop = Forwarder(), threading.Event()
    thread = threading.Thread(target=forwarder.run, args=[stop])
    thread.start()
    try:
        port = ForwardedPort("default/web:http", ((LOOPBACK, ENDPOINT_PORT),), 0)
        forwarder.update(Family.IPV4, {NODE_PORT: port})
        deadline = time.monotonic() + START_SECONDS
        while not forwarder.listener_count(Family.IPV4):
            if time.monotonic() > deadline:
                sys.exit("bench: the forwarder does not listen")
            time.sleep(0.01)
        _, pid = descendants(os.getpid())
        yield pid
    finally:
        stop.set()
        forwarder.close()
        thread.join()


def _connect(endpoint: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection through the forwarder."""
    client = socket.create_connection((LOOPBACK, NODE_PORT))
    return client, endpoint.accept()[0]


def _connection_cpu(pid: int, endpoint: socket.socket, count: int) -> float:
    """Return the forwarder's CPU seconds for each of many connections, one after the other; both sides end them."""
    before = own_cpu_seconds(pid)
    for _ in range(count):
        client, accepted = _connect(endpoint)
        with client, accepted:
            client.shutdown(socket.SHUT_WR)
            accepted.recv(1)
            accepted.shutdown(socket.SHUT_WR)
            client.recv(1)
    return (own_cpu_seconds(pid) - before) / count


def _transfer_cpu(pid: int, endpoint: socket.socket, size: int) -> float:
    """Return the forwarder's CPU seconds for ``size`` bytes from a client."""
    client, accepted = _connect(endpoint)
    before = own_cpu_seconds(pid)
    with client, accepted:
        sender = threading.Thread(target=_send, args=[client, size])
        sender.start()
        buffer = bytearray(PIECE)
        while accepted.recv_into(buffer):
            pass
        sender.join()
    return own_cpu_seconds(pid) - before


def _send(client: socket.socket, size: int) -> None:
    data = memoryview(bytes(PIECE))
    for begin in range(0, size, PIECE):
        client.sendall(data[: size - begin])
    client.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
