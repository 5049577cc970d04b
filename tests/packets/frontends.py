"""Who dials what while endpoints come and go: three clients, each at every frontend that means something to it."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.packets.churn import SERVICES, Kind
from tests.packets.crowd import clients
from tests.packets.families import VERSIONS, address
from tests.support.lab import plan
from tests.support.lab.answering import PROTOCOLS
from tests.support.lab.calls import Target
from tests.support.lab.outcomes import Protocol

CLIENTS = ("outside", "local-4", "node")
"""From elsewhere, from a pod (which is an endpoint itself, and may be led to itself), and from the node."""
PLACES = ("cluster", "external", "node")
REMEMBERED = 20
"""So many addresses of ``outside`` dial sticky Services, in each family."""


class Frontend(NamedTuple):
    """A frontend as one client sees it, in one family and protocol."""

    client: str
    kind: Kind
    place: str
    version: plan.Version
    protocol: Protocol

    @property
    def is_local(self) -> bool:
        """Whether the policy allows local endpoints alone; an external policy is only for who comes from outside."""
        return self.place in self.kind.local_frontends and (self.client == "outside" or self.place == "cluster")

    @property
    def target(self) -> Target:
        """What is dialled."""
        number = self.kind.number
        name = "node" if self.place == "node" else f"{self.place}.{number}"
        port = self.kind.node_port if self.place == "node" else 80
        crowd = self.client == "outside" and self.kind.is_sticky
        sources = tuple(clients(self.version, REMEMBERED)) if crowd else ()
        return Target(address(name, self.version), port, self.protocol, sources)

    def __str__(self) -> str:
        """Return the frontend in words."""
        return f"{self.client} to {self.kind.name} by {self.place}, {self.protocol} over IPv{self.version}"


def frontends(client: str) -> list[Frontend]:
    """Return all that a client dials."""
    return [
        Frontend(client, kind, place, version, protocol)
        for kind, place in _places(client)
        for version in VERSIONS
        for protocol in PROTOCOLS
    ]


def _places(client: str) -> Iterator[tuple[Kind, str]]:
    for kind in SERVICES:
        for place in PLACES:
            # Where a client may also be led to remote endpoints, it may be remembered at two.
            two_classes = client == "outside" and kind.is_sticky and kind.local_frontends
            if not two_classes or place in kind.local_frontends:
                yield kind, place
