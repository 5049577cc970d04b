"""ServicePlan: all decisions about one Service port, independent of how they are written.

The nftables renderer and kube-proxy's legacy renderers read the same plan.
"""

import enum

from msgspec import Struct

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort
from knft.protocols import Protocol


class FrontendKind(enum.IntEnum):
    """The kind of a frontend; if two Services claim one, the lower kind wins (docs/behaviour/ownership.md)."""

    CLUSTER_IP = 0
    LOAD_BALANCER_VIP = 1
    EXTERNAL_IP = 2
    NODE_PORT = 3


class Frontend(Struct, frozen=True, gc=False):
    """What clients connect to: an address and a port, or a NodePort (``address`` is None)."""

    kind: FrontendKind
    address: str | None
    protocol: Protocol
    port: int

    @property
    def key(self) -> "FrontendKey":
        """The frontend without its kind; only one Service can own it."""
        return (self.address, self.protocol, self.port)


FrontendKey = tuple[str | None, Protocol, int]
"""Address (None for a NodePort), protocol and port."""


class CategorizedEndpoints(Struct, frozen=True):
    """The endpoints for each traffic policy (docs/behaviour/endpoints.md).

    ``cluster`` and ``local`` are for policies Cluster and Local, ``all_reachable`` is their union.
    ``has_any_endpoints`` tells whether any endpoint in the cluster is usable, even if a policy excludes it.
    """

    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    all_reachable: tuple[Endpoint, ...] = ()
    has_any_endpoints: bool = False


class TrafficAction(enum.Enum):
    """What happens to traffic of one policy."""

    CLUSTER = "cluster"
    """Send it to the cluster endpoints."""
    LOCAL = "local"
    """Send it to the endpoints on this node."""
    REJECT = "reject"
    """Reject it: the Service has no endpoints."""
    DROP = "drop"
    """Drop it: policy Local applies, and all endpoints are on other nodes."""


class ServicePlan(Struct, frozen=True):
    """The plan for one Service port in one family.

    ``frontends`` are those that the Service port owns; frontends that another Service owns are not included.
    ``internal`` applies to its cluster IP, ``external`` to the other frontends. ``allowed_sources`` are the CIDRs that
    may connect to its load balancer VIPs, () for all.
    """

    name: ServicePortName
    port: ServicePort
    endpoints: CategorizedEndpoints
    frontends: tuple[Frontend, ...]
    internal: TrafficAction
    external: TrafficAction
    allowed_sources: tuple[str, ...] = ()
