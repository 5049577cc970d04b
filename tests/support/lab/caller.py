"""One caller: ``python -m tests.support.lab.caller PLAN`` in a host's namespace, until it has called so often or SIGTERM."""

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

from .calls import NONE, Call, Target
from .processes import die_with_parent

PATIENCE = 10.0
"""Seconds after which nobody has answered; what TCP sends again is counted, so this only has to be long."""

# In turn, since a flow of UDP is remembered for half a minute.
_PORTS = range(20000, 60000)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TCP_TOTAL_RETRANS = struct.Struct("=100xI")  # The last field of struct tcp_info that is read.


def main() -> None:
    """Dial, and write down."""
    die_with_parent()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    plan = json.loads(sys.argv[1])
    targets = [Target(*target) for target in plan["targets"]]
    for call in itertools.islice(_calls(targets, Random(plan["seed"])), plan["count"]):  # noqa: S311 - to be had again
        print(call)
        time.sleep(plan["pause"])
        if ended:
            break


def _calls(targets: list[Target], chance: Random) -> Iterator[Call]:
    for port in itertools.cycle(_PORTS):
        number = chance.randrange(len(targets))
        target = targets[number]
        source = chance.choice(target.sources) if target.sources else NONE
        begun = time.monotonic()
        server, served_at, again, trouble = _ask(target, source, port)
        yield Call(number, source, begun, time.monotonic(), server, served_at, again, trouble)


def _ask(target: Target, source: str, port: int) -> tuple[str, int, int, str]:
    is_tcp = target.protocol == "tcp"
    with _socket(target) as client:
        try:
            client.bind(("" if source == NONE else source, port))
            client.connect((target.address, target.port))
            if not is_tcp:
                client.send(b"?")
            said = json.loads(client.recv(4096) or "{}")
            again = _sent_again(client) if is_tcp else 0
        except OSError as error:
            return NONE, 0, 0, type(error).__name__
    return (said["server"], said["port"], again, NONE) if said else (NONE, 0, again, "Closed")


def _sent_again(client: socket.socket) -> int:
    info = client.getsockopt(socket.SOL_TCP, socket.TCP_INFO, _TCP_TOTAL_RETRANS.size)
    return int(_TCP_TOTAL_RETRANS.unpack(info)[0])


def _socket(target: Target) -> socket.socket:
    family = socket.AF_INET if ipaddress.ip_address(target.address).version == 4 else socket.AF_INET6
    client = socket.socket(family, socket.SOCK_STREAM if target.protocol == "tcp" else socket.SOCK_DGRAM)
    client.settimeout(PATIENCE)
    if target.protocol == "tcp":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    return client


if __name__ == "__main__":
    main()
