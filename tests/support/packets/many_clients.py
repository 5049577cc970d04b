"""Thousands of client addresses on the outside host, for Services with session affinity."""

import threading
from collections.abc import Iterator
from typing import Any, Self

from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack, netlink
from tests.support.lab.outcomes import Protocol
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial_each
from tests.support.packets.programmed import ProgrammedNode
from tests.support.scenario import address

CLIENTS = plan.Addresses("10.250.0.0/16", "fd00:10:250::/112")
PODS = ("local-1", "local-2", "remote-1", "remote-2")
HTTP, ADMIN = 8080, 8081
STICKY = {"sessionAffinity": "ClientIP"}


def add_client_addresses(lab: Lab) -> None:
    """Give the outside host 65 000 more addresses in each family."""
    outside = lab.host("outside").namespace
    outside.sysctl("net.ipv6.ip_nonlocal_bind", 1)
    with netlink(outside) as link:
        link.add_local_networks(CLIENTS)
    with netlink(lab.host("node").namespace) as link:
        link.add_routes(CLIENTS, plan.OUTSIDE)


def sticky_for(seconds: int) -> dict[str, Any]:
    """Return the fields of a Service's spec for session affinity with this timeout."""
    return STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}


def clients(version: plan.Version, count: int) -> list[str]:
    """Return the addresses of that many clients, all on the outside host."""
    if version == 4:
        return [f"10.250.{number // 250}.{number % 250 + 1}" for number in range(count)]
    return [f"fd00:10:250::{number + 1:x}" for number in range(count)]


class OutsideClients:
    """Clients on the outside host, which connect in one family and protocol."""

    def __init__(self, node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> None:
        self._host = node.lab.host("outside")
        self._node = node.namespace
        self._version = version
        self._protocol: Protocol = protocol

    def servers_of(self, name: str, port: int, clients: list[str]) -> dict[str, str]:
        """Return the server of each client at ``$name:port``; conntrack entries are flushed first."""
        self.flush_conntrack()
        return self.servers_keeping_flows(name, port, iter(clients))

    def flush_conntrack(self) -> None:
        """Delete conntrack entries: a UDP entry outlives its client, and another client may get its port."""
        flush_conntrack(self._node)

    def servers_keeping_flows(self, name: str, port: int, clients: Iterator[str]) -> dict[str, str]:
        """Return the server of each client, without flushing conntrack entries first."""
        return dial_each(self._host, address(name, self._version), port, self._protocol, clients)


class BackgroundDials:
    """Clients that connect one after the other in a thread; a context manager.

    The block begins after MARGIN clients, and the thread ends MARGIN clients after the block. So ``answers``, which is
    set at the end, has more than twice MARGIN clients if any has connected during the block.
    """

    MARGIN = 500

    def __init__(self, dialler: OutsideClients, name: str, port: int, clients: list[str]) -> None:
        self._dialler, self._name, self._port, self._clients = dialler, name, port, clients
        self._thread = threading.Thread(target=self._dial, name="meanwhile")
        self._started, self._stopping = threading.Event(), threading.Event()
        self.answers: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._dialler.flush_conntrack()
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _dial(self) -> None:
        try:
            self.answers = self._dialler.servers_keeping_flows(self._name, self._port, self._until_stopped())
        finally:
            self._started.set()

    def _until_stopped(self) -> Iterator[str]:
        remaining = self.MARGIN
        for number, client in enumerate(self._clients):
            if number == self.MARGIN:
                self._started.set()
            if remaining == 0:
                return
            remaining -= self._stopping.is_set()
            yield client
