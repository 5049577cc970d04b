"""``python -m tests.bench.invalid_packets`` measures what ``--drop-invalid-packets`` costs other packets.

A pod sends UDP packets to a Service whose endpoint is on another node, so the node forwards them: without and with the
option in turn, each in a lab of its own. The value is the sender's CPU time for each packet, which includes the way
through the node.
"""

import argparse
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from msgspec import structs

from knft.config import Config
from tests.bench.machine import describe, load_at_end
from tests.support.families import address
from tests.support.kernel_harness import CONFIG
from tests.support.lab.topology import Lab
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp
from tests.support.privilege import PrivilegeError, ensure_namespaces

CLIENT, ENDPOINT, ENDPOINT_PORT, PORT, NUMBER = "local-3", "remote-1", 8080, 80, 90
OBJECTS = (service("web", NUMBER, *tcp_and_udp("http", PORT)), endpoints("web", ENDPOINT, http=ENDPOINT_PORT))
SETTINGS = {"without": CONFIG, "with": structs.replace(CONFIG, drop_invalid_packets=True)}


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.invalid_packets", description=__doc__)
    parser.add_argument("--packets", type=int, default=20_000, help="packets of each run")
    parser.add_argument("--runs", type=int, default=12, help="runs with each setting, in turn")
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    print("\n".join(f"{name}: {value}" for name, value in describe().items()))
    found: dict[str, list[float]] = {name: [] for name in SETTINGS}
    with ExitStack() as stack:
        clients = {name: stack.enter_context(_client(config)) for name, config in SETTINGS.items()}
        for _ in range(arguments.runs):
            for name, values in found.items():
                values.append(_microseconds(clients[name], arguments.packets))
    for name, values in found.items():
        print(
            f"{name} the option: {statistics.median(values):.2f} µs a packet ({min(values):.2f} to {max(values):.2f})"
        )
    print("\n".join(f"{name}: {value}" for name, value in load_at_end().items()))


@contextmanager
def _client(config: Config) -> Iterator[socket.socket]:
    """Yield a socket of a pod, connected to the Service of a node of its own; the endpoint does not read."""
    with Lab() as lab, ProgrammedNode(lab, config) as node:
        node.apply(OBJECTS)
        with lab.host(ENDPOINT).namespace.entered():
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("", ENDPOINT_PORT))
        with lab.host(CLIENT).namespace.entered():
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with closing(receiver), closing(client):
            client.connect((address(f"cluster.{NUMBER}", 4), PORT))
            client.send(b"first")
            receiver.settimeout(1.0)
            if receiver.recv(16) != b"first":
                sys.exit("bench: the endpoint does not receive what the pod sends")
            yield client


def _microseconds(client: socket.socket, packets: int) -> float:
    """Return the CPU time of this thread for each packet."""
    before = time.thread_time()
    for _ in range(packets):
        client.send(b"packet")
    return (time.thread_time() - before) / packets * 1e6


if __name__ == "__main__":
    main()
