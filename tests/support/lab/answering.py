"""Responders in a process of their own, for traffic that shall not wait for what the test does meanwhile.

``Answering`` starts it; ``python -m tests.support.lab.answering`` is the process. It answers until its input ends.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

from .namespace import Namespace
from .outcomes import Protocol
from .processes import die_with_parent
from .responders import Responders
from .topology import Host

PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")


class Answering:
    """Servers at every one of the ports, in both protocols and families; a context manager."""

    def __init__(self, hosts: Iterable[Host], ports: Sequence[int]) -> None:
        """Prepare to answer on these hosts."""
        self._hosts, self._ports = tuple(hosts), tuple(ports)

    def __enter__(self) -> Self:
        """Start the process; all its servers listen when this returns."""
        fds = [host.namespace.fd for host in self._hosts]
        plan = {
            "hosts": [[host.name, fd, host.ipv4, host.ipv6] for host, fd in zip(self._hosts, fds, strict=True)],
            "ports": self._ports,
        }
        command = [sys.executable, "-m", "tests.support.lab.answering", json.dumps(plan)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"
        return self

    def __exit__(self, *_: object) -> None:
        """Stop answering."""
        self._process.communicate()


def main() -> None:
    """Answer as the argument says, until the input ends."""
    die_with_parent()
    plan: dict[str, Any] = json.loads(sys.argv[1])
    hosts = [Host(name, Namespace(name, fd), ipv4, ipv6, None) for name, fd, ipv4, ipv6 in plan["hosts"]]
    with Responders() as servers:
        for host in hosts:
            for port in plan["ports"]:
                for protocol in PROTOCOLS:
                    servers.serve(host, port, protocol)
        print("listening", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
