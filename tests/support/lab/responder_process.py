"""Responders in a separate process, so that they answer while the test's own process is busy.

``ResponderProcess`` starts it; ``python -m tests.support.lab.responder_process`` is the process, which runs until its
input ends.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Protocol
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Host
from tests.support.processes import die_with_parent

PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")


class ResponderProcess:
    """Servers on each host at each port, in both protocols and families; a context manager."""

    def __init__(self, hosts: Iterable[Host], ports: Sequence[int]) -> None:
        """Take the hosts and ports; nothing is started yet."""
        self._hosts, self._ports = tuple(hosts), tuple(ports)

    def __enter__(self) -> Self:
        """Start the process; all its servers are listening when this returns."""
        fds = [host.namespace.fd for host in self._hosts]
        plan = {
            "hosts": [[host.name, fd, host.ipv4, host.ipv6] for host, fd in zip(self._hosts, fds, strict=True)],
            "ports": self._ports,
        }
        command = [sys.executable, "-m", "tests.support.lab.responder_process", json.dumps(plan)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    """Serve the hosts and ports that the argument names, until the input ends."""
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
