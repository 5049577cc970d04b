"""Clients and frontends of the connections that are made while endpoints change.

Each of three clients connects to every frontend that is useful to it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.support.families import VERSIONS, address
from tests.support.lab import plan
from tests.support.lab.clients import ClientTarget
from tests.support.lab.outcomes import Protocol
from tests.support.lab.responder_process import PROTOCOLS
from tests.support.packets.churn import SERVICES, ChurningService
from tests.support.packets.many_clients import clients

CLIENTS = ("outside", "local-4", "node")
"""A client outside the cluster; a pod, which is an endpoint too and may be chosen for its own connection; the node."""
ADDRESS_KINDS = ("cluster", "external", "node")
STICKY_CLIENTS = 20
"""The number of addresses in each family from which ``outside`` connects to sticky Services."""


class Frontend(NamedTuple):
    """One client, Service, kind of address, IP family and protocol."""

    client: str
    service: ChurningService
    address_kind: str
    version: plan.Version
    protocol: Protocol

    @property
    def is_local(self) -> bool:
        """Whether only local endpoints may answer. An external policy applies to clients from outside only."""
        return self.address_kind in self.service.local_only_frontends and (
            self.client == "outside" or self.address_kind == "cluster"
        )

    @property
    def target(self) -> ClientTarget:
        """The address to connect to."""
        number = self.service.number
        name = "node" if self.address_kind == "node" else f"{self.address_kind}.{number}"
        port = self.service.node_port if self.address_kind == "node" else 80
        has_many_clients = self.client == "outside" and self.service.is_sticky
        sources = tuple(clients(self.version, STICKY_CLIENTS)) if has_many_clients else ()
        return ClientTarget(address(name, self.version), port, self.protocol, sources)

    def __str__(self) -> str:
        """Return a description."""
        return f"{self.client} to {self.service.name} by {self.address_kind}, {self.protocol} over IPv{self.version}"


def frontends(client: str) -> list[Frontend]:
    """Return the frontends that a client connects to."""
    return [
        Frontend(client, service, address_kind, version, protocol)
        for service, address_kind in _useful_address_kinds(client)
        for version in VERSIONS
        for protocol in PROTOCOLS
    ]


def _useful_address_kinds(client: str) -> Iterator[tuple[ChurningService, str]]:
    for service in SERVICES:
        for address_kind in ADDRESS_KINDS:
            # A sticky client that could reach local and cluster endpoints may be remembered at one of each.
            may_be_remembered_twice = client == "outside" and service.is_sticky and service.local_only_frontends
            if not may_be_remembered_twice or address_kind in service.local_only_frontends:
                yield service, address_kind
