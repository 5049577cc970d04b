"""ServicePlan: what is decided about one Service port, before anyone asks how to write it down.

The nftables renderer and the legacy renderers read the same plan.
"""

import enum

from msgspec import Struct

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort
from knft.protocols import Protocol


class FrontendKind(enum.IntEnum):
    """What a frontend is; the lower one wins where two Services claim the same (DESIGN.md 1.1)."""

    CLUSTER_IP = 0
    LOAD_BALANCER_VIP = 1
    EXTERNAL_IP = 2
    NODE_PORT = 3


class Frontend(Struct, frozen=True, gc=False):
    """What a client dials: an address and a port, or a NodePort (``address`` is None)."""

    kind: FrontendKind
    address: str | None
    protocol: Protocol
    port: int

    @property
    def key(self) -> "FrontendKey":
        """The frontend without its kind: what two Services cannot both have."""
        return (self.address, self.protocol, self.port)


FrontendKey = tuple[str | None, Protocol, int]
"""Address (None for a NodePort), protocol and port."""


class CategorizedEndpoints(Struct, frozen=True):
    """The endpoints that traffic of each policy may reach (B).

    ``cluster`` and ``local`` are for policies Cluster and Local, ``all_reachable`` is their union; ``has_any_endpoints`` tells
    whether any endpoint anywhere is usable, also where a policy forbids it.
    """

    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    all_reachable: tuple[Endpoint, ...] = ()
    has_any_endpoints: bool = False


class TrafficAction(enum.Enum):
    """What becomes of one class of traffic."""

    CLUSTER = "cluster"
    """It goes to the cluster endpoints."""
    LOCAL = "local"
    """It goes to the endpoints on this node."""
    REJECT = "reject"
    """The Service has no endpoints: the client is told at once."""
    DROP = "drop"
    """There are endpoints, but policy Local finds none here: the packet is dropped."""


class ServicePlan(Struct, frozen=True):
    """Everything decided about one Service port in one family.

    ``frontends`` are those that the Service port owns; a frontend lost to another Service is not among them.
    ``internal`` is for its cluster IP, ``external`` for its other frontends. ``allowed_sources`` are the CIDRs that its
    load balancer VIPs may be dialled from, () for everybody.
    """

    name: ServicePortName
    port: ServicePort
    endpoints: CategorizedEndpoints
    frontends: tuple[Frontend, ...]
    internal: TrafficAction
    external: TrafficAction
    allowed_sources: tuple[str, ...] = ()
