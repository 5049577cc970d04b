"""Clients by the thousand: addresses of the outside host, which all dial a Service with session affinity."""

import threading
from collections.abc import Iterator
from typing import Any, Self

from tests.packets.programmed import ProgrammedNode
from tests.packets.scenario import address
from tests.support.lab import plan
from tests.support.lab.links import forget_flows, netlink
from tests.support.lab.outcomes import Protocol
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial_each

CLIENTS = plan.Addresses("10.250.0.0/16", "fd00:10:250::/112")
PODS = ("local-1", "local-2", "remote-1", "remote-2")
HTTP, ADMIN = 8080, 8081
STICKY = {"sessionAffinity": "ClientIP"}


def gather(lab: Lab) -> None:
    """Give the outside host 65 000 addresses in each family."""
    outside = lab.host("outside").namespace
    outside.sysctl("net.ipv6.ip_nonlocal_bind", 1)
    with netlink(outside) as link:
        link.own_network(CLIENTS)
    with netlink(lab.host("node").namespace) as link:
        link.add_routes(CLIENTS, plan.OUTSIDE)


def sticky_for(seconds: int) -> dict[str, Any]:
    """Return what a Service says that remembers its clients for so long."""
    return STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}


def clients(version: plan.Version, count: int) -> list[str]:
    """Return the addresses of that many clients, all of them the outside host's."""
    if version == 4:
        return [f"10.250.{number // 250}.{number % 250 + 1}" for number in range(count)]
    return [f"fd00:10:250::{number + 1:x}" for number in range(count)]


class Dialler:
    """The outside host, dialling one frontend in one family and protocol."""

    def __init__(self, node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> None:
        self._host = node.lab.host("outside")
        self._node = node.namespace
        self._version = version
        self._protocol: Protocol = protocol

    def ask(self, name: str, port: int, clients: list[str]) -> dict[str, str]:
        """Return who answers each client at ``$name:port``; each is a new connection, whatever port it comes from."""
        self.forget()
        return self.ask_on(name, port, iter(clients))

    def forget(self) -> None:
        """Forget the flows there are: one of UDP outlives the question, and a client may be given its port again."""
        forget_flows(self._node)

    def ask_on(self, name: str, port: int, clients: Iterator[str]) -> dict[str, str]:
        """Return who answers each client, where no flow has to be forgotten."""
        return dial_each(self._host, address(name, self._version), port, self._protocol, clients)


class Meanwhile:
    """Clients that dial one after the other in a thread: a context manager that begins after the first of them have.

    Each dials once. ``answers`` is there at the end, when as many again have dialled after the block: more than
    twice MARGIN, unless nobody has dialled in the block.
    """

    MARGIN = 500

    def __init__(self, dialler: Dialler, name: str, port: int, clients: list[str]) -> None:
        self._dialler, self._name, self._port, self._clients = dialler, name, port, clients
        self._thread = threading.Thread(target=self._dial, name="meanwhile")
        self._begun, self._ending = threading.Event(), threading.Event()
        self.answers: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._dialler.forget()
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _dial(self) -> None:
        try:
            self.answers = self._dialler.ask_on(self._name, self._port, self._in_turn())
        finally:
            self._begun.set()

    def _in_turn(self) -> Iterator[str]:
        left = self.MARGIN
        for number, client in enumerate(self._clients):
            if number == self.MARGIN:
                self._begun.set()
            if left == 0:
                return
            left -= self._ending.is_set()
            yield client
