"""ServicePlan: all decisions about one Service port, independent of how they are rendered.

The renderers of knft's rules and of kube-proxy's modes iptables and ipvs read the same plan.
"""

import enum

from msgspec import Struct

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort
from knft.protocols import Protocol


class FrontendKind(enum.IntEnum):
    """The kind of a frontend; if two Services claim one, the smaller number wins (docs/behaviour/ownership.md).

    A NodePort has no address, so only another NodePort can claim the same frontend.
    """

    CLUSTER_IP = 0
    LOAD_BALANCER_VIP = 1  # a load balancer IP; VIP is kube-proxy's word
    EXTERNAL_IP = 2
    NODE_PORT = 3


class Frontend(Struct, frozen=True, gc=False):
    """An address, protocol and port at which clients reach a Service port; ``address`` is None for a NodePort."""

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
    ``has_any_endpoints`` tells whether any endpoint, on any node, is usable, even if a policy excludes it. The names
    are those of kube-proxy's CategorizeEndpoints.
    """

    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    all_reachable: tuple[Endpoint, ...] = ()
    has_any_endpoints: bool = False


class TrafficAction(enum.Enum):
    """What happens to the traffic that one traffic policy, internal or external, applies to."""

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
    may connect to its load balancer IPs, () for all sources.
    """

    name: ServicePortName
    port: ServicePort
    endpoints: CategorizedEndpoints
    frontends: tuple[Frontend, ...]
    internal: TrafficAction
    external: TrafficAction
    allowed_sources: tuple[str, ...] = ()
